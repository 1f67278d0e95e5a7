package measure

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// FreePorts finds n ports of 127.0.0.1 without a listener, below those that the system gives to clients, so that no connection takes one
// before its server does.
func FreePorts(n int) ([]string, error) {
	var ports []string
	for port := 20_000 + os.Getpid()%5_000; len(ports) < n && port < 32_000; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		ports = append(ports, strconv.Itoa(port))
	}
	if len(ports) < n {
		return nil, errors.New("no port is free")
	}
	return ports, nil
}
