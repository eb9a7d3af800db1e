cni::executable!(static_ipam::Static);
