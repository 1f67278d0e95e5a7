package http1_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/server/http1"
)

// streamThree streams a short piece, an empty piece, and a piece longer than InlineReply.
func streamThree(w *http1.Reply, _ *http1.Request) {
	w.ContentType, w.Header = "text/event-stream", http1.Field{Name: "x-load", Value: "JSON {}"}
	w.Begin(http.StatusOK)
	_ = w.Continue([]byte("data: "), []byte("1\n\n"))
	_ = w.Continue()
	_ = w.Continue([]byte("data: "), []byte(strings.Repeat("x", 3*http1.InlineReply)), []byte("\n\n"))
	w.End()
}

var threePieces = "data: 1\n\ndata: " + strings.Repeat("x", 3*http1.InlineReply) + "\n\n"

func TestStreamedReplyKeepsItsConnection(t *testing.T) {
	client, _ := http1.Served(t, http1.Config{}, streamThree)
	in := bufio.NewReader(client)
	for range 2 {
		if _, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		reply, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil || string(body) != threePieces {
			t.Fatalf("body has %d bytes, %v; want %d", len(body), err, len(threePieces))
		}
		if len(reply.TransferEncoding) != 1 || reply.TransferEncoding[0] != "chunked" || reply.Header.Get("X-Load") != "JSON {}" ||
			reply.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("head %v %v", reply.TransferEncoding, reply.Header)
		}
	}
}

func TestStreamedReplyOfHTTP10EndsWithItsConnection(t *testing.T) {
	client, _ := http1.Served(t, http1.Config{}, streamThree)
	if _, err := io.WriteString(client, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := strings.Cut(string(all), "\r\n\r\n")
	if body != threePieces || strings.Contains(head, "chunked") || strings.Contains(head, "keep-alive") {
		t.Errorf("head %q, body of %d bytes; want %d", head, len(body), len(threePieces))
	}
}

func TestStreamedReplyToHEADHasNoBody(t *testing.T) {
	client, _ := http1.Served(t, http1.Config{}, streamThree)
	if _, err := io.WriteString(client, "HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(client)
	if err != nil || !strings.HasSuffix(string(all), "\r\n\r\n") || strings.Contains(string(all), "data:") {
		t.Errorf("got %q, %v", all, err)
	}
}

func TestStreamedReplyWithoutPiecesIsWhole(t *testing.T) {
	client, _ := http1.Served(t, http1.Config{}, func(w *http1.Reply, _ *http1.Request) {
		w.Begin(http.StatusOK)
		w.End()
	})
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reply, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	if body, err := io.ReadAll(reply.Body); err != nil || len(body) > 0 {
		t.Errorf("body %q, %v", body, err)
	}
}

// TestPanicCutsStreamedReplyOff checks that a client can tell a reply cut off by a panic from a
// complete one.
func TestPanicCutsStreamedReplyOff(t *testing.T) {
	client, _ := http1.Served(t, http1.Config{}, func(w *http1.Reply, _ *http1.Request) {
		w.Begin(http.StatusOK)
		_ = w.Continue([]byte("data: 1\n\n"))
		panic("in the middle")
	})
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reply, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	if body, err := io.ReadAll(reply.Body); !errors.Is(err, io.ErrUnexpectedEOF) || string(body) != "data: 1\n\n" {
		t.Errorf("body %q, %v", body, err)
	}
}

func TestPanicBeforeFirstPieceIsToldAsError(t *testing.T) {
	client, _ := http1.Served(t, http1.Config{}, func(w *http1.Reply, _ *http1.Request) {
		w.Begin(http.StatusOK)
		panic("before anything was sent")
	})
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reply, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _ = reply.Body.Close(); reply.StatusCode != http.StatusInternalServerError {
		t.Errorf("status %d", reply.StatusCode)
	}
}
