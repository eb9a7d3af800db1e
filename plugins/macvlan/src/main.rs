cni::executable!(macvlan::Macvlan);
