package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// serveBare answers inferences with their own tensor, over net/http and grpc-go, until ctx ends. It
// prints the two addresses.
func serveBare(ctx context.Context) error {
	var sockets [2]net.Listener
	for i := range sockets {
		var err error
		if sockets[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	web := &http.Server{Handler: http.HandlerFunc(answerHTTP), ReadHeaderTimeout: time.Minute}
	const window = 16 << 20
	rpc := grpc.NewServer(
		grpc.ForceServerCodecV2(passing{}), grpc.UnknownServiceHandler(answerGRPC), grpc.MaxRecvMsgSize(1<<30),
		grpc.MaxSendMsgSize(1<<30), grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
	)
	failed := make(chan error, 2) // one value from each server
	go func() { failed <- web.Serve(sockets[0]) }()
	go func() { failed <- rpc.Serve(sockets[1]) }()
	fmt.Println(sockets[0].Addr(), sockets[1].Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	rpc.Stop()
	return errors.Join(web.Close(), waitFor(failed), waitFor(failed))
}

// waitFor waits for a server's end. ErrServerClosed is not an error.
func waitFor(failed <-chan error) error {
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bodies are reused, as in any careful server: creating them is half the cost of a large request.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

func answerHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v2/models/identity_fp32/infer" {
		http.NotFound(w, r)
		return
	}
	kept := bodies.Get().(*[]byte)
	defer bodies.Put(kept)
	n := int(max(r.ContentLength, 0))
	if cap(*kept) < n {
		*kept = make([]byte, n)
	}
	body := (*kept)[:n]
	head, err := strconv.Atoi(r.Header.Get(headLength))
	if err != nil || head < 0 || head > n {
		http.Error(w, "want a binary tensor", http.StatusBadRequest)
		return
	}
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	size := n - head
	json := fmt.Sprintf(`{"model_name":"identity_fp32","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32",`+
		`"shape":[%d],"parameters":{"binary_data_size":%d}}]}`, size/4, size)
	headers := w.Header()
	headers["Content-Type"] = []string{"application/octet-stream"}
	headers["Content-Length"] = []string{strconv.Itoa(len(json) + size)}
	headers[headLength] = []string{strconv.Itoa(len(json))}
	_, _ = io.WriteString(w, json) // the client may have gone
	_, _ = w.Write(body[head:])
}

// answerGRPC answers with the received buffers.
func answerGRPC(_ any, stream grpc.ServerStream) error {
	if method, _ := grpc.MethodFromServerStream(stream); method == streamMethod {
		return answerStream(stream)
	}
	var request mem.BufferSlice
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	at, size, err := tensorIn(request, rawInputs)
	if err != nil {
		request.Free()
		return err
	}
	head, err := responseHead(size)
	if err != nil {
		request.Free()
		return err
	}
	rest := request
	for at > 0 {
		first := rest[0]
		rest = rest[1:]
		if first.Len() <= at {
			at -= first.Len()
			first.Free()
			continue
		}
		left, right := mem.SplitUnsafe(first, at)
		left.Free()
		rest = append(mem.BufferSlice{right}, rest...)
		at = 0
	}
	response := withTensor(head, rawOutputs, size, rest)
	defer response.Free()
	return stream.SendMsg(&response)
}
