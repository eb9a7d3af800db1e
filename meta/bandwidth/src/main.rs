cni::executable!(bandwidth::Bandwidth);
