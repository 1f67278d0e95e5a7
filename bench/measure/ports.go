package measure

import (
	"strconv"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// ReservePorts reserves n ports of 127.0.0.1 until this process ends.
func ReservePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		port, _, err := testkit.ReservePort()
		if err != nil {
			return nil, err
		}
		ports = append(ports, strconv.Itoa(port))
	}
	return ports, nil
}
