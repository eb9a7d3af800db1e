cni::executable!(loopback::Loopback);
