cni::executable!(host_device::HostDevice);
