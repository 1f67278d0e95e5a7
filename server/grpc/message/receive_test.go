package message

import (
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/kserve"
)

// TestTransportHandsOverPieces checks that messages can be read while they arrive. Without this
// feature of the library everything would work, but more slowly. It is internal because the feature
// is not part of the library's API.
func TestTransportHandsOverPieces(t *testing.T) {
	found := make(chan bool, 1)
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		_, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(transport)
		found <- ok
		return nil
	}))
	defer srv.Stop()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(socket) }()
	conn, err := grpc.NewClient(socket.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.Invoke(t.Context(), "/a/b", &kserve.ServerLiveRequest{}, &kserve.ServerLiveResponse{})
	if !<-found {
		t.Error("the library's stream cannot be read in pieces any more")
	}
}
