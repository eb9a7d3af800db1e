cni::executable!(firewall::Firewall);
