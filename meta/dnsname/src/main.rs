cni::executable!(dnsname::Dnsname);
