package rest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/inference"
)

// TestGoodClientsAreServedBesideOthers checks that well-behaved clients are served while other
// clients misbehave.
func TestGoodClientsAreServedBesideOthers(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	const clients, rounds = 16, 30
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			c, err := net.Dial("tcp", s.Addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			r := bufio.NewReader(c)
			for i := range rounds {
				size := []int{4, 5000, 70_000, 300_000}[(n+i)%4]
				letter := string(rune('a' + (n+i)%26))
				head := oneInput("UINT8", fmt.Sprintf("[%d]", size), fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, size))
				head = strings.TrimSuffix(head, "}") + "," + binaryOutput + "}"
				data := strings.Repeat(letter, size)
				request := Text("POST", "/v2/models/id_uint8/infer", head+data, fmt.Sprintf("%s: %d", inference.HeaderLengthName, len(head)))
				if n%4 == 3 { // disconnects in the middle, and reconnects
					_, _ = io.WriteString(c, request[:len(request)*(i+1)/(rounds+1)])
					_ = c.Close()
					if c, err = net.Dial("tcp", s.Addr); err != nil {
						t.Error(err)
						return
					}
					continue
				}
				sent := make(chan error, 1)
				go func() {
					_, err := io.WriteString(c, request)
					sent <- err
				}()
				reply, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Errorf("client %d: %v", n, err)
					return
				}
				body, err := io.ReadAll(reply.Body)
				_ = reply.Body.Close()
				if err != nil || reply.StatusCode != 200 || !strings.HasSuffix(string(body), "}]}"+data) {
					t.Errorf("client %d: got %d with %d bytes (%v), want its %d bytes back", n, reply.StatusCode, len(body), err, size)
					return
				}
				if err := <-sent; err != nil {
					t.Errorf("client %d: send: %v", n, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
