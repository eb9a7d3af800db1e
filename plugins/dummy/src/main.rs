cni::executable!(dummy::Dummy);
