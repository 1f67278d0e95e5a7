package rest_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/server/http1/http1test"
	"github.com/nereid-serving/nereid/server/rest"
)

func TestHostileRequestsAreRefused(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	reference := startReference(t)
	for _, tt := range http1test.Hostile {
		t.Run(tt.Name, func(t *testing.T) {
			got, open := statuses(t, s.Addr, tt.Text)
			if !slices.Equal(got, tt.Want) || open != tt.Open {
				t.Errorf("got %d, open %v; want %d, %v", got, open, tt.Want, tt.Open)
			}
			theirs, taken := statuses(t, reference, tt.Text)
			if !taken && refuses(theirs) && !refuses(got) && tt.Lenient == "" {
				t.Errorf("got %d, but net/http says %d", got, theirs)
			}
		})
	}
	Eventually(t, "all connections have ended", func() bool { return s.Connections() == 0 })
}

// refuses reports whether a server's last reply is an HTTP error, or there is no reply.
func refuses(statuses []int) bool {
	if len(statuses) == 0 {
		return true
	}
	last := statuses[len(statuses)-1]
	return last == 400 || last == 431 || last == 501 || last == 505
}

// startReference starts a net/http server with a handler that reads bodies.
func startReference(t *testing.T) string {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reference := &http.Server{ReadHeaderTimeout: Patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusBadRequest)
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- reference.Serve(socket) }()
	t.Cleanup(func() {
		_ = reference.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return socket.Addr().String()
}

// statuses sends text followed by a valid request. It returns the statuses of all replies except
// that to the valid request, whose reply shows that the connection was still open.
func statuses(t *testing.T, addr, text string) (list []int, open bool) {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(Patience))
	const last = "GET /v2/health/live HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	sent := make(chan struct{}) // closed once the server has read it, or will not read it
	go func() {
		defer close(sent)
		_, _ = io.WriteString(raw, text+last)
	}()
	r := bufio.NewReader(raw)
	for {
		resp, err := http.ReadResponse(r, nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("replies %d, and then neither another one nor the end", list)
		}
		if err != nil {
			break
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if open = resp.StatusCode == 200 && resp.Close && resp.ContentLength == 0; open {
			break
		}
		list = append(list, resp.StatusCode)
		if resp.Close {
			break
		}
	}
	_ = raw.Close()
	<-sent
	return list, open
}
