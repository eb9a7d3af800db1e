cni::executable!(portmap::Portmap);
