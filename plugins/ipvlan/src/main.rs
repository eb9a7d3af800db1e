cni::executable!(ipvlan::Ipvlan);
