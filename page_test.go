package nereid_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid"
)

// listen creates a server with a page and makes it listen. It returns the log.
func listen(t *testing.T, page nereid.PageOptions) (s *nereid.Server, log string, err error) {
	t.Helper()
	var written bytes.Buffer
	o := options(t, t.TempDir())
	o.Page, o.Logger = page, zerolog.New(&written).Level(zerolog.InfoLevel)
	s, err = nereid.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	err = s.Listen()
	return s, written.String(), err
}

// TestPageNeedsNoPort occupies the page's port. A page that is enabled by default is left out with
// a warning; a page that was explicitly enabled fails the start.
func TestPageNeedsNoPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port

	s, log, err := listen(t, nereid.PageOptions{Allow: true, Port: port, Dispensable: true})
	if err != nil || s.PageAddr() != nil || s.HTTPAddr() == nil || !strings.Contains(log, `"level":"warn"`) || !strings.Contains(log, "--http-ui-port") {
		t.Errorf("by default: got error %v, the page at %v and the log %s, want a server without a page and a warning", err, s.PageAddr(), log)
	}
	if _, _, err := listen(t, nereid.PageOptions{Allow: true, Port: port}); err == nil || !strings.Contains(err.Error(), "already in use") {
		t.Errorf("asked for: got error %v, want that the port is in use", err)
	}
}

// TestPageIsForThisMachine checks that the page listens on loopback by default.
func TestPageIsForThisMachine(t *testing.T) {
	s, log, err := listen(t, nereid.PageOptions{Allow: true})
	if err != nil {
		t.Fatal(err)
	}
	if address := s.PageAddr().(*net.TCPAddr); !address.IP.IsLoopback() || !strings.Contains(log, "http://"+address.String()) || strings.Contains(log, "password") {
		t.Errorf("got the page at %v and the log %s, want it on loopback", address, log)
	}
	s, log, err = listen(t, nereid.PageOptions{Allow: true, Address: "0.0.0.0"})
	if err != nil || s.PageAddr().(*net.TCPAddr).IP.IsLoopback() || !strings.Contains(log, "has no password") {
		t.Errorf("another address: got error %v, the page at %v and the log %s, want it there and a warning", err, s.PageAddr(), log)
	}
}

// TestPageIsServedBesideTheOthers reads the page of a running server, and stops the server while
// the browser's connection is still open.
func TestPageIsServedBesideTheOthers(t *testing.T) {
	o := options(t, repository(t, doubleModel))
	o.Page.Allow, o.HTTP.DrainTime = true, time.Hour
	s, stop, ended := serve(t, o)

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	reply, err := client.Get("http://" + s.PageAddr().String() + "/models/double")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	if err != nil || !strings.Contains(string(text), "double/config.pbtxt") || !strings.Contains(string(text), `name="values.0"`) {
		t.Errorf("got the page %s, %v, want that of the model", text, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: got error %v after its context ended, want none", err)
	}
}
