cni::executable!(ptp::Ptp);
