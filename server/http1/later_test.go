package http1_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/http1"
)

// asked is a request whose reply a test sends from its own goroutine.
type asked struct {
	w    *http1.Reply
	path string
	ctx  context.Context
}

// reply replies with the path of the request.
func (a asked) reply(atOnce bool) bool {
	return a.w.SendLater(atOnce, func() { a.w.Send(http.StatusOK, []byte(a.path)) })
}

// handOver returns a handler that hands requests to the test.
func handOver(t *testing.T) (serve func(*http1.Reply, *http1.Request), requests <-chan asked) {
	t.Helper()
	list := make(chan asked, 16)
	return func(w *http1.Reply, r *http1.Request) {
		if !w.Later() {
			t.Error("the reply cannot be sent later")
			w.Send(http.StatusOK, nil)
			return
		}
		list <- asked{w, r.Path(), r.Context()}
	}, list
}

func get(path string, lines ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: h\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// expect reads a reply with this body.
func expect(t *testing.T, in *bufio.Reader, status int, body string) {
	t.Helper()
	reply, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("the reply %q: %v", body, err)
	}
	got, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	if err != nil || reply.StatusCode != status || string(got) != body {
		t.Fatalf("got %d with %d bytes, %.40q, %v; want %d with %.40q", reply.StatusCode, len(got), got, err, status, body)
	}
}

// ended waits until the server has closed the connection without more output.
func ended(t *testing.T, in *bufio.Reader) {
	t.Helper()
	if b, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Fatalf("got byte %q, %v; want the end of the connection", b, err)
	}
}

func TestRepliesOfAnotherGoroutine(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		serve, requests := handOver(t)
		address, account := http1.Running(t, http1.Config{}, serve)
		c := http1.Dial(t, address)
		in := bufio.NewReader(c)
		for i := range 20 {
			path := fmt.Sprint("/", i)
			send(t, c, get(path, "a: "+strings.Repeat("b", i*100)))
			if !(<-requests).reply(atOnce) {
				t.Fatal("the reply was not sent")
			}
			expect(t, in, http.StatusOK, path)
		}
		testkit.Eventually(t, time.Minute, func() bool { return account.Used(budget.Transport) == 0 })
	}
}

// TestTheHandlerMayReplyAfterAll checks NotLater, and a reply that is sent while the handler runs.
func TestTheHandlerMayReplyAfterAll(t *testing.T) {
	address, _ := http1.Running(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
		if !w.Later() {
			t.Error("the reply cannot be sent later")
		}
		if r.Path() == "/not" {
			w.NotLater()
			w.Send(http.StatusOK, []byte("/not"))
			return
		}
		asked{w: w, path: r.Path()}.reply(true)
		if len(w.Sent()) != 1 {
			t.Error("the reply is not known to have been sent")
		}
	})
	c := http1.Dial(t, address)
	in := bufio.NewReader(c)
	for _, path := range []string{"/not", "/now", "/now", "/not"} {
		send(t, c, get(path))
		expect(t, in, http.StatusOK, path)
	}
}

func TestPipelinedRequestsKeepTheirOrder(t *testing.T) {
	serve, requests := handOver(t)
	address, _ := http1.Running(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
		if r.Path() == "/b" { // the one before has been answered
			w.Send(http.StatusOK, []byte("/b"))
			return
		}
		serve(w, r)
	})
	c := http1.Dial(t, address)
	in := bufio.NewReader(c)
	for range 10 {
		send(t, c, get("/a"))
		first := <-requests
		send(t, c, get("/b")+get("/c")[:20])
		first.reply(true)
		expect(t, in, http.StatusOK, "/a")
		expect(t, in, http.StatusOK, "/b")
		send(t, c, get("/c")[20:])
		(<-requests).reply(true)
		expect(t, in, http.StatusOK, "/c")
	}
}

// TestRequestsBehindOneAreServedByTheHandler sends two requests in one piece: the reply to the first
// cannot be sent later, as there is input.
func TestRequestsBehindOneAreServedByTheHandler(t *testing.T) {
	later := make(chan bool, 2)
	address, _ := http1.Running(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
		can := w.Later()
		later <- can
		if can {
			w.NotLater()
		}
		w.Send(http.StatusOK, []byte(r.Path()))
	})
	c := http1.Dial(t, address)
	in := bufio.NewReader(c)
	send(t, c, get("/a")+get("/b"))
	expect(t, in, http.StatusOK, "/a")
	expect(t, in, http.StatusOK, "/b")
	if first, second := <-later, <-later; first || !second {
		t.Errorf("the replies could be sent later: %v and %v, want the second alone", first, second)
	}
}

func TestClientsThatLeaveEndTheContext(t *testing.T) {
	serve, requests := handOver(t)
	address, _ := http1.Running(t, http1.Config{}, serve)
	for _, reset := range []bool{false, true} {
		c := http1.Dial(t, address)
		send(t, c, get("/"))
		request := <-requests
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		_ = c.Close()
		<-request.ctx.Done()
		request.reply(true)
	}
}

// TestClientsThatEndTheirOutputGetTheReply checks that the end of a client's output does not cancel
// a fast request.
func TestClientsThatEndTheirOutputGetTheReply(t *testing.T) {
	address, _ := http1.Running(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
		w.Later()
		go asked{w: w, path: r.Path()}.reply(true)
	})
	c := http1.Dial(t, address)
	in := bufio.NewReader(c)
	send(t, c, get("/x"))
	_ = c.(*net.TCPConn).CloseWrite()
	expect(t, in, http.StatusOK, "/x")
	ended(t, in)
}

// TestTheSenderDoesNotWaitForTheClient sends a reply that the socket cannot take at once.
func TestTheSenderDoesNotWaitForTheClient(t *testing.T) {
	serve, requests := handOver(t)
	address, _ := http1.Running(t, http1.Config{}, serve)
	c := http1.Dial(t, address)
	in := bufio.NewReader(c)
	body := strings.Repeat("0123456789abcdef", 1<<20)
	for range 2 {
		send(t, c, get("/"))
		request := <-requests
		request.w.SendLater(true, func() { request.w.Send(http.StatusOK, []byte(body[:8<<20]), []byte(body[8<<20:])) })
		expect(t, in, http.StatusOK, body)
	}
}

func TestPanicsOfSenders(t *testing.T) {
	for name, test := range map[string]struct {
		late bool // the handler has panicked before another goroutine sends
		f    func(a asked) (sent bool)
	}{
		"the sender panics":  {f: func(a asked) bool { return a.w.SendLater(true, func() { panic("no reply today") }) }},
		"the handler panics": {late: true, f: func(a asked) bool { return a.reply(true) }},
	} {
		t.Run(name, func(t *testing.T) {
			before := testkit.Panics(panics.Request)
			serve, requests := handOver(t)
			address, _ := http1.Running(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
				serve(w, r)
				if test.late {
					panic("no handler today")
				}
			})
			c := http1.Dial(t, address)
			in := bufio.NewReader(c)
			send(t, c, get("/"))
			request := <-requests
			if test.late {
				expect(t, in, http.StatusInternalServerError, "internal error while serving the request")
			}
			if sent := test.f(request); sent == test.late {
				t.Errorf("SendLater returned %v", sent)
			}
			if !test.late {
				expect(t, in, http.StatusInternalServerError, "internal error while serving the request")
			}
			ended(t, in)
			if n := testkit.Panics(panics.Request) - before; n != 1 {
				t.Errorf("%d panics were counted, want 1", n)
			}
		})
	}
}

// TestHandlerPanicsAfterTheReply checks that a panic of the handler does not send a second reply.
func TestHandlerPanicsAfterTheReply(t *testing.T) {
	address, _ := http1.Running(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
		w.Later()
		asked{w: w, path: r.Path()}.reply(true)
		panic("no handler today")
	})
	c := http1.Dial(t, address)
	in := bufio.NewReader(c)
	for range 3 {
		send(t, c, get("/x"))
		expect(t, in, http.StatusOK, "/x")
	}
}

func TestTheLastReplyEndsTheConnection(t *testing.T) {
	for name, input := range map[string]string{
		"the client says so": get("/x", "Connection: close"),
		"HTTP/1.0":           "GET /x HTTP/1.0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			serve, requests := handOver(t)
			address, _ := http1.Running(t, http1.Config{}, serve)
			c := http1.Dial(t, address)
			in := bufio.NewReader(c)
			send(t, c, input)
			(<-requests).reply(true)
			expect(t, in, http.StatusOK, "/x")
			ended(t, in)
		})
	}
}

// TestSlowModelsOutliveTheIdleTimeout checks that a connection that waits for a model is not idle.
func TestSlowModelsOutliveTheIdleTimeout(t *testing.T) {
	serve, requests := handOver(t)
	const idle = 20 * time.Millisecond
	address, _ := http1.Running(t, http1.Config{IdleTimeout: idle}, serve)
	c := http1.Dial(t, address)
	in := bufio.NewReader(c)
	send(t, c, get("/x"))
	request := <-requests
	time.Sleep(5 * idle) // the model's work
	if request.ctx.Err() != nil {
		t.Error("the context has ended")
	}
	request.reply(true)
	expect(t, in, http.StatusOK, "/x")
	ended(t, in) // now it is idle
}

// TestManyConnectionsWithRepliesOfOthers has clients that pipeline, pause, disconnect and use one
// connection for long, while other goroutines reply. It is for the race detector.
func TestManyConnectionsWithRepliesOfOthers(t *testing.T) {
	work := make(chan asked, 64)
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for a := range work {
				a.reply(len(a.path)%2 == 0)
			}
		})
	}
	t.Cleanup(func() { close(work); senders.Wait() }) // after the server's end
	address, _ := http1.Running(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
		if !w.Later() {
			w.Send(http.StatusOK, []byte(r.Path()))
			return
		}
		work <- asked{w: w, path: r.Path()}
	})
	var clients sync.WaitGroup
	for n := range 16 {
		clients.Go(func() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			in := bufio.NewReader(c)
			for i := range 100 {
				count := 1 + (n+i)%3
				text := ""
				for k := range count {
					text += get("/" + strconv.Itoa(1000*i+k))
				}
				if _, err := io.WriteString(c, text); err != nil {
					t.Error(err)
					return
				}
				if n%4 == 3 && i%10 == 9 { // disconnects, and connects again
					_ = c.Close()
					if c, err = net.Dial("tcp", address); err != nil {
						t.Error(err)
						return
					}
					in.Reset(c)
					continue
				}
				for k := range count {
					reply, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Errorf("client %d, request %d: %v", n, i, err)
						return
					}
					body, err := io.ReadAll(reply.Body)
					_ = reply.Body.Close()
					if want := "/" + strconv.Itoa(1000*i+k); err != nil || string(body) != want {
						t.Errorf("client %d: got %q, %v; want %q", n, body, err, want)
						return
					}
				}
			}
		})
	}
	clients.Wait()
}
