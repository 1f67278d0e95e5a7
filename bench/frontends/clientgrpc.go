package main

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// grpcClient sends requests over its own connection. Messages are encoded once.
type grpcClient struct {
	conn    *grpc.ClientConn
	request mem.BufferSlice
	tensor  []byte
	scratch []byte
}

func connectGRPC(p *process, size int) (client, error) {
	const window = 16 << 20
	conn, err := grpc.NewClient("passthrough:///"+p.grpc,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(passing{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
	if err != nil {
		return nil, err
	}
	data := tensor(size)
	request, err := requestMessage(data)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &grpcClient{conn: conn, request: request, tensor: data, scratch: make([]byte, 64<<10)}, nil
}

func (c *grpcClient) close() error { return c.conn.Close() }

func (c *grpcClient) ask(ctx context.Context, check bool) error {
	var response mem.BufferSlice
	if err := c.conn.Invoke(ctx, inferMethod, &c.request, &response); err != nil {
		return err
	}
	defer response.Free()
	at, size, err := tensorIn(response, rawOutputs)
	if err != nil {
		return err
	}
	if size != len(c.tensor) {
		return fmt.Errorf("tensor of %d bytes, want %d", size, len(c.tensor))
	}
	if !check {
		return nil
	}
	reader := response.Reader()
	if _, err := io.CopyN(io.Discard, reader, int64(at)); err != nil {
		return err
	}
	return readTensor(reader, c.tensor, c.scratch, true)
}
