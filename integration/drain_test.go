package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// TestDrainServesKeptConnections sends requests on keep-alive connections while SIGTERM stops the
// server. No client may get an error, because the last reply on a connection announces its close.
// The server must wait for an idle connection and exit after its last request.
func TestDrainServesKeptConnections(t *testing.T) {
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": identityModel})
	s := start(t, testkit.Python(t).Path, repository, "--exit-timeout-secs=7200", "--http-drain-seconds=3600")
	const clients = 4
	url := fmt.Sprintf("http://127.0.0.1:%d/v2/models/m/infer", s.http)
	const body = `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`
	infer := func(client *http.Client) (last bool, err error) {
		response, err := client.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", response.StatusCode, text)
		}
		return response.Close, err
	}
	newClient := func() *http.Client {
		return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: startLimit}
	}
	idle := newClient()
	if _, err := infer(idle); err != nil {
		t.Fatal(err)
	}
	warm, ended := make(chan struct{}, clients), make(chan error, clients)
	for range clients {
		client := newClient()
		go func() {
			for n := 0; ; n++ {
				last, err := infer(client)
				if last || err != nil {
					ended <- err
					return
				}
				if n == 10 {
					warm <- struct{}{}
				}
			}
		}()
	}
	for range clients {
		<-warm
	}
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	for range clients {
		if err := <-ended; err != nil {
			t.Errorf("a client that kept its connection: %v", err)
		}
	}
	if !s.prints(" HTTP service connections") {
		t.Error("the server does not say that it waits for connections")
	}
	if last, err := infer(idle); err != nil || !last {
		t.Errorf("the client that was idle: got last %v, error %v; want its answer", last, err)
	}
	if status := s.wait(startLimit); status != 0 { // the drain, which could last longer, ends with the last connection
		t.Errorf("exit status %d, want 0", status)
	}
	for _, line := range []string{" HTTP service connections", "Found 1 live models and 0 in-flight non-inference requests"} {
		if n := strings.Count(s.log.String(), line); n < 1 || n > 1 && line[0] == ' ' {
			t.Errorf("%q is printed %d times, want once", line, n)
		}
	}
}
