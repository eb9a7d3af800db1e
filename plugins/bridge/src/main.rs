cni::executable!(bridge::Bridge);
