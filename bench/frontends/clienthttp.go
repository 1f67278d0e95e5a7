package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// httpClient sends HTTP/1.1 requests with binary tensors directly over a socket, so that the
// measurement is mostly about the server.
type httpClient struct {
	conn    net.Conn
	reader  *bufio.Reader
	head    []byte // request line, headers and JSON
	tensor  []byte
	scratch []byte
}

func connectHTTP(p *process, size int) (client, error) {
	conn, err := net.Dial("tcp", p.http)
	if err != nil {
		return nil, err
	}
	json := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[%d],"parameters":{"binary_data_size":%d}}],`+
		`"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`, size/4, size)
	head := fmt.Sprintf("POST /v2/models/identity_fp32/infer HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n%s: %d\r\n\r\n%s",
		p.http, len(json)+size, headLength, len(json), json)
	return &httpClient{
		conn: conn, reader: bufio.NewReaderSize(conn, 16<<10), head: []byte(head), tensor: tensor(size),
		scratch: make([]byte, 64<<10),
	}, nil
}

func (c *httpClient) close() error { return c.conn.Close() }

func (c *httpClient) ask(_ context.Context, check bool) error {
	message := net.Buffers{c.head, c.tensor} // written with one call
	if _, err := message.WriteTo(c.conn); err != nil {
		return err
	}
	status, length, head, err := c.readHead()
	if err != nil {
		return err
	}
	if status != "200" {
		body := make([]byte, min(length, 1000))
		_, _ = io.ReadFull(c.reader, body) // the body only adds detail to the error
		return fmt.Errorf("status %s: %s", status, body)
	}
	if length-head != len(c.tensor) {
		return fmt.Errorf("body of %d bytes with a head of %d, want a tensor of %d", length, head, len(c.tensor))
	}
	if _, err := c.reader.Discard(head); err != nil {
		return err
	}
	return readTensor(c.reader, c.tensor, c.scratch, check)
}

// readHead reads the status line and the headers, and returns the status and
// the lengths of the body and of its JSON.
func (c *httpClient) readHead() (status string, length, head int, err error) {
	length = -1
	for first := true; ; first = false {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return "", 0, 0, fmt.Errorf("read the head of a response: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if first {
			if len(line) < 12 {
				return "", 0, 0, fmt.Errorf("status line is %q", line)
			}
			status = string(line[9:12])
			continue
		}
		if len(line) == 0 {
			if length < 0 {
				return "", 0, 0, errors.New("response has no Content-Length")
			}
			return status, length, head, nil
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			length, err = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte(headLength)):
			head, err = strconv.Atoi(string(value))
		}
		if err != nil {
			return "", 0, 0, fmt.Errorf("header %q: %w", line, err)
		}
	}
}

// headLength is the header with the number of bytes of JSON in a body; the tensors follow.
const headLength = "Inference-Header-Content-Length"

// readTensor reads a tensor of want's size, and compares it with want if check is true.
func readTensor(from io.Reader, want, scratch []byte, check bool) error {
	for at := 0; at < len(want); {
		n, err := from.Read(scratch[:min(len(scratch), len(want)-at)])
		if check && !bytes.Equal(scratch[:n], want[at:at+n]) {
			return fmt.Errorf("tensor differs from the one sent, after %d bytes", at)
		}
		at += n
		if err != nil && at < len(want) {
			return fmt.Errorf("read a tensor: got %d bytes of %d: %w", at, len(want), err)
		}
	}
	return nil
}
