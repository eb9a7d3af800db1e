cni::executable!(dhcp::Dhcp);
