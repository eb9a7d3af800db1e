cni::executable!(sbr::Sbr);
