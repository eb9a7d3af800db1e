cni::executable!(flannel::Flannel);
