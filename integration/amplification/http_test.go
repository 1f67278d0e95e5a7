package amplification

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// overHTTP returns a function that sends a request with the given method, path and headers.
func overHTTP(address, method, path string, headers ...string) func([]byte, *attack, *delivery) error {
	return func(body []byte, a *attack, d *delivery) error {
		conn, err := dial(address, a.unread)
		if err != nil {
			return err
		}
		defer conn.Close()
		head := httpHead(method, path, headers...)
		if d.coding != "" {
			head += "Content-Encoding: " + d.coding + "\r\n"
		}
		switch {
		case a.pieces > 0:
			head += "Transfer-Encoding: chunked\r\n\r\n"
		case a.body != nil || a.each != nil:
			head += fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))
		default:
			head += "\r\n"
		}
		written := make(chan struct{}) // closed by the goroutine
		go func() {
			defer close(written)
			writeHTTP(conn, head, body, a.pieces) // a server that rejects a request may leave the rest unread
		}()
		defer func() { <-written }()
		if a.unread {
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				return err
			}
			d.arrived("unread")
			<-d.held
			conn.Close()
			return nil
		}
		err = readHTTP(conn, d)
		conn.Close()
		return err
	}
}

func httpHead(method, path string, headers ...string) string {
	head := method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
	for _, h := range headers {
		head += h + "\r\n"
	}
	return head
}

func writeHTTP(conn net.Conn, head string, body []byte, pieces int) {
	w := bufio.NewWriterSize(conn, 256<<10)
	_, _ = w.WriteString(head)
	if pieces == 0 {
		_, _ = w.Write(body)
		_ = w.Flush()
		return
	}
	for len(body) > 0 {
		n := min(pieces, len(body))
		_, _ = fmt.Fprintf(w, "%x\r\n", n)
		_, _ = w.Write(body[:n])
		if _, err := w.WriteString("\r\n"); err != nil {
			return
		}
		body = body[n:]
	}
	_, _ = w.WriteString("0\r\n\r\n")
	_ = w.Flush()
}

// readHTTP reads a complete reply.
func readHTTP(conn net.Conn, d *delivery) error {
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fmt.Errorf("no reply: %w", err)
	}
	defer reply.Body.Close()
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		return fmt.Errorf("a reply of status %d is cut: %w", reply.StatusCode, err)
	}
	d.arrived(reply.Status)
	return nil
}

// halfHTTP returns a function that opens connections and sends only the beginning of a request on
// each.
func halfHTTP(address, beginning string, connections int) func([]byte, *attack, *delivery) error {
	return func(_ []byte, _ *attack, d *delivery) error {
		for range connections {
			conn, err := dial(address, true)
			if err != nil {
				return err
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, beginning); err != nil {
				return err
			}
		}
		d.arrived("open")
		<-d.held
		return nil
	}
}

// partialHead returns an unterminated request head of about size bytes.
func partialHead(method, path string, size int) string {
	head := httpHead(method, path)
	for i := 0; len(head) < size-16; i++ {
		head += fmt.Sprintf("x%d: y\r\n", i)
	}
	return head
}

// segment returns a path segment of n bytes.
func segment(n int) string { return strings.Repeat("m", n) }
