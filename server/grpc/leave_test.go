package grpc_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/kserve/grpcservice"
	grpcserver "github.com/nereid-serving/nereid/server/grpc"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestLeaveSendsClientsAwayAndServes checks that connected clients receive a GOAWAY, which ends
// their connections after their RPCs, and that clients that connect later are served and receive
// one too.
func TestLeaveSendsClientsAwayAndServes(t *testing.T) {
	w := newWaiting(false)
	s := start(t, grpcserver.Config{}, servertest.NewCore(w.Model))
	answered := make(chan error, 1)
	go func() {
		_, err := s.client.ModelInfer(rpcContext(t), int32s("waits", 2))
		answered <- err
	}()
	w.await(t, 1)
	s.Leave()

	later, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	for range 2 { // the second time it must reconnect
		if _, err := grpcservice.NewGRPCInferenceServiceClient(later).ServerLive(rpcContext(t), &kserve.ServerLiveRequest{}); err != nil {
			t.Fatalf("a client that comes later: %v", err)
		}
		if ctx := rpcContext(t); !later.WaitForStateChange(ctx, connectivity.Ready) {
			t.Error("its connection stays")
		}
	}
	select {
	case err := <-answered:
		t.Fatalf("the RPC in flight has ended before the model has answered: %v", err)
	default:
	}
	close(w.gate)
	if err := <-answered; err != nil {
		t.Errorf("the RPC in flight: %v", err)
	}
	testkit.Eventually(t, servertest.Patience, func() bool { return len(s.Connections()) == 0 })
	if _, err := s.client.ServerLive(rpcContext(t), &kserve.ServerLiveRequest{}); err != nil {
		t.Errorf("the first client, anew: %v", err)
	}
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// TestShutdownAfterLeaveEndsRPCsOfBoth checks that a shutdown ends RPCs in flight on connections
// from before and after Leave in time.
func TestShutdownAfterLeaveEndsRPCsOfBoth(t *testing.T) {
	w := newWaiting(false)
	s := start(t, grpcserver.Config{}, servertest.NewCore(w.Model))
	answered := make(chan error, 2)
	ask := func(client grpcservice.GRPCInferenceServiceClient) {
		_, err := client.ModelInfer(rpcContext(t), int32s("waits", 2))
		answered <- err
	}
	go ask(s.client)
	w.await(t, 1)
	s.Leave()
	later, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	go ask(grpcservice.NewGRPCInferenceServiceClient(later))
	w.await(t, 2)
	s.cancel()
	<-s.Stopping()
	close(w.gate)
	for range 2 {
		if err := <-answered; err != nil {
			t.Errorf("got error %v, want the answer", err)
		}
	}
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}
