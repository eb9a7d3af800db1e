cni::executable!(tap::Tap);
