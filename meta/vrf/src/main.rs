cni::executable!(vrf::VrfPlugin);
