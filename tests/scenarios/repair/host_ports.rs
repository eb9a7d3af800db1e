//! Host ports after a repair.

use std::net::UdpSocket;

use super::*;

#[test]
fn repair_flushes_only_udp_flows_that_do_not_reach_the_container() {
    beyond_reference!("repair");
    for (backend, loss) in [
        ("nftables", "nft flush chain inet ferrule hostports"),
        ("iptables", "iptables-nft -t nat -F FERRULE-HOSTPORTS"),
    ] {
        let lab = Lab::new();
        let (pod, far) = (lab.container("pod"), lab.machine("far"));
        let mappings = json!([{"hostPort": 5353, "containerPort": 53, "protocol": "udp"}]);
        let tool = tool(&lab, backend).env("CAP_ARGS", &json!({"portMappings": mappings}).to_string());
        tool.says("add net pod --container-id pod");
        let server = pod.run(|| UdpSocket::bind("10.1.2.2:53")).unwrap();
        server.set_read_timeout(Some(RESTORED)).unwrap();
        let client = |port: u16| {
            let socket = far.run(|| UdpSocket::bind(("198.51.100.2", port))).unwrap();
            socket.connect("198.51.100.1:5353").unwrap();
            socket.set_read_timeout(Some(RESTORED)).unwrap();
            socket
        };
        let is_heard = || server.recv_from(&mut [0; 8]).unwrap().1.to_string();
        let stream = client(4000);
        stream.send(b"?").unwrap();
        assert_eq!(is_heard(), "198.51.100.2:4000");

        lab.host().sh(loss);
        // The kernel tracks this flow as one to the host itself.
        let late = client(4001);
        late.send(b"?").unwrap();
        until("the flow is tracked", || lab.host().sh("cat /proc/net/nf_conntrack").contains("sport=4001"));
        assert_eq!(tool.json("repair net")["repaired"], json!(["net/pod/eth0"]), "{backend}");

        // Only the kernel's entry of the flow gives the datagram the host's address.
        server.send_to(b"!", "198.51.100.2:4000").unwrap();
        assert_eq!(stream.recv(&mut [0; 8]).unwrap(), 1, "{backend}");
        // The client has received that nothing listens on the host's port.
        until("it is sent", || late.send(b"?").is_ok());
        assert_eq!(is_heard(), "198.51.100.2:4001", "{backend}");
    }
}
