cni::executable!(tuning::Tuning);
