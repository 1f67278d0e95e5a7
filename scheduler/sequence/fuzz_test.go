package sequence_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/sequence"
)

// FuzzSequence runs a script of bytes. It checks that each request gets one last response, that a
// sequence's requests are executed in order and one per batch, and that nothing is left at the end.
func FuzzSequence(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 3, 10, 20, 30, 0x40, 0x41, 0x42, 0x80, 0x81, 0x90})
	f.Add([]byte("\x01\x00\x08\x10\x18\x40\x20\x28\x50\x00\x04\x60\x41\x70\x00\x02\x80\x44\x90\x40\x48"))
	f.Add([]byte("\x02seven sequences, two instances, and one of them is lost"))
	f.Add([]byte("\x03\xf0\xe1\xd2\xc3\xb4\xa5\x96\x87\x78\x69\x5a\x4b\x3c\x2d\x1e\x0f"))
	f.Add([]byte("0+0\x7f000\xe3")) // lost between a START that had not begun and the END
	// Models with states, the second of them decoupled.
	f.Add([]byte("\x09\x00\x08\x10\x18\x40\x20\x28\x50\x00\x04\x60\x41\x70\x00\x02\x80\x44\x90\x40\x48"))
	f.Add([]byte("\x1aseven sequences, two instances, and one of them is lost"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 2 || len(script) > 300 {
			return
		}
		synctest.Test(t, func(t *testing.T) { playSequence(t, script[0], script[1:]) })
	})
}

// TestStormAnswersEverySequence sends sequences from many clients to instances that die now and
// then. Run it with the race detector.
func TestStormAnswersEverySequence(t *testing.T) {
	for _, c := range []struct {
		name   string
		config sequence.Config
	}{{"direct", direct(4, 0, 0)}, {"oldest", oldest(4, 6, 0)}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := c.config
				var counts tally
				config.Model, config.Observer = "m", &counts
				s := sequence.New(config)
				instances := []*backendtest.Instance{backendtest.NewInstance("i", 3*time.Millisecond), backendtest.NewInstance("j", 5*time.Millisecond)}
				for _, in := range instances {
					s.Available(in)
				}
				answers := make(chan int, 1<<10)
				const clients, sequences = 16, 20
				for n := range clients {
					go func() {
						got := 0
						for k := range sequences {
							id := infer.CorrelationID{Number: uint64(n*sequences + k + 1)}
							for step := range 5 {
								ctx, cancel := context.Background(), context.CancelFunc(func() {})
								if n%4 == 3 && step == 2 {
									ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
								}
								flags := []uint32{infer.SequenceStart, 0, 0, 0, infer.SequenceEnd}[step]
								err := s.Infer(ctx, &infer.Request{Correlation: id, Flags: flags, BatchSize: 1}, func(r *infer.Response) { got++ })
								cancel()
								if err != nil {
									break // the sequence was lost, or ended by a cancelled request
								}
							}
						}
						answers <- got
					}()
				}
				for range 10 {
					time.Sleep(20 * time.Millisecond)
					in := instances[0]
					in.Refuse.Store(true)
					time.Sleep(10 * time.Millisecond) // until its batch ends
					s.Lost(in, false)
					time.Sleep(10 * time.Millisecond)
					in.Refuse.Store(false)
					s.Available(in)
				}
				total := 0
				for range clients {
					total += <-answers
				}
				if err := s.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				if s.InFlight() != 0 || counts.Waiting.Load() != 0 || counts.Negative.Load() || total < clients*sequences {
					t.Errorf("%d answers, %d in flight, %d pending, fewer than none for a while: %v", total, s.InFlight(), counts.Waiting.Load(), counts.Negative.Load())
				}
				for _, in := range instances {
					if in.Overlapped() {
						t.Errorf("instance %s had two batches at once", in.Name())
					}
				}
			})
		})
	}
}
