cni::executable!(vlan::Vlan);
