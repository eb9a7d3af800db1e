// Calls libcni, the Go library with which containerd, CRI-O and Podman 4 run plugins. Debian packages the library, but
// none of its programs.
//
//	libcni add|check|del NETWORK CONTAINER NETNS
//	libcni gc NETWORK [CONTAINER ...]
//
// add, check and del pass the JSON in CAP_ARGS as capability arguments. gc keeps the attachments of the listed containers.
// The interface is eth0. Networks are in /etc/cni/net.d, plugins in CNI_PATH, and results in libcni's default cache.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

const ifName = "eth0"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "libcni:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: libcni add|check|del NETWORK CONTAINER NETNS, or libcni gc NETWORK [CONTAINER ...]")
	}
	command, name, rest := args[0], args[1], args[2:]
	network, err := libcni.LoadNetworkConf("/etc/cni/net.d", name)
	if err != nil {
		return err
	}
	plugins := libcni.NewCNIConfig(filepath.SplitList(os.Getenv("CNI_PATH")), nil)
	if command == "gc" {
		valid := &libcni.GCArgs{}
		for _, container := range rest {
			at := types.GCAttachment{ContainerID: container, IfName: ifName}
			valid.ValidAttachments = append(valid.ValidAttachments, at)
		}
		return plugins.GCNetworkList(context.Background(), network, valid)
	}
	if len(rest) != 2 {
		return fmt.Errorf("%s needs a container and a namespace", command)
	}
	attachment := &libcni.RuntimeConf{ContainerID: rest[0], NetNS: rest[1], IfName: ifName}
	if text := os.Getenv("CAP_ARGS"); text != "" {
		if err := json.Unmarshal([]byte(text), &attachment.CapabilityArgs); err != nil {
			return fmt.Errorf("CAP_ARGS: %w", err)
		}
	}
	switch command {
	case "add":
		_, err = plugins.AddNetworkList(context.Background(), network, attachment)
		return err
	case "check":
		return plugins.CheckNetworkList(context.Background(), network, attachment)
	case "del":
		return plugins.DelNetworkList(context.Background(), network, attachment)
	default:
		return fmt.Errorf("unknown command %q", command)
	}
}
