cni::executable!(host_local::HostLocal);
