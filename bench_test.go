package nereid_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/nereid-serving/nereid"
)

// BenchmarkInfer sends small requests from one client over HTTP. Its profile shows the server from
// the socket to the rings, and the client:
//
//	go test -run '^$' -bench Infer -cpuprofile cpu.out .
func BenchmarkInfer(b *testing.B) {
	s, err := nereid.New(options(b, repository(b, doubleModel)))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1) // receives the result of Run
	go func() { ended <- s.Run(ctx) }()
	url := "http://" + s.HTTPAddr().String() + "/v2/models/double/infer"
	for b.Loop() {
		if status, answer := request(b, url, `{"inputs":[{"name":"X","datatype":"INT32","shape":[3],"data":[1,2,3]}]}`); status != http.StatusOK {
			b.Fatalf("got status %d, %s", status, answer)
		}
	}
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
