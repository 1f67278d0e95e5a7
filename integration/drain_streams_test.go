package integration

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

// inFlight returns the models of TestDrainFinishesAllKindsOfRequests. Each creates a file when it
// begins, and waits for the file "gate" before it continues.
func inFlight(t *testing.T, signs string) string {
	waits := func(name string) string {
		return fmt.Sprintf("open('%[1]s/%[2]s', 'w').close()\n        while not os.path.exists('%[1]s/gate'):\n            time.sleep(0.01)\n", signs, name)
	}
	single := func(name string) string {
		return sendingHead + "    def execute(self, requests):\n        " + waits(name) + "        return [answer(number(r)) for r in requests]\n"
	}
	several := func(name string) string {
		return sendingHead + "    def execute(self, requests):\n        for r in requests:\n            threading.Thread(target=self.run, args=(r.get_response_sender(), number(r))).start()\n\n" +
			"    def run(self, sender, n):\n        sender.send(answer(0))\n        " + waits(name) + "        for i in range(1, n):\n            sender.send(answer(i))\n        sender.send(flags=FINAL)\n"
	}
	files := map[string]string{
		"calls/config.pbtxt": numberConfig,
		"calls/1/model.py": sendingHead + "    def execute(self, requests):\n        called = [pb_utils.InferenceRequest(model_name='called', requested_output_names=['OUT'], inputs=[pb_utils.Tensor('N', np.array([number(r)], np.int32))]).exec() for r in requests]\n" +
			"        return [answer(int(c.output_tensors()[0].as_numpy()[0])) for c in called]\n",
	}
	for _, name := range []string{"http", "rpc", "stream", "called"} {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"] = numberConfig, single(name)
	}
	for _, name := range []string{"events", "responses"} {
		files[name+"/config.pbtxt"], files[name+"/1/model.py"] = decoupledConfig, several(name)
	}
	return writeFiles(t, files)
}

// TestDrainFinishesAllKindsOfRequests sends SIGTERM while requests of all kinds are in flight: over
// HTTP, by BLS, with server-sent events, as a unary RPC, and on streams with one or many responses.
// All must get their complete response. Connections and streams that clients keep open must not
// delay the shutdown.
func TestDrainFinishesAllKindsOfRequests(t *testing.T) {
	for name, flags := range map[string][]string{"at once": nil, "with a delay": {"--exit-delay-secs=1"}} {
		t.Run(name, func(t *testing.T) {
			signs := t.TempDir()
			s := start(t, testkit.Python(t).Path, inFlight(t, signs), append(flags, "--exit-timeout-secs=600", "--http-drain-seconds=0")...)
			ended := make(chan error, 7)
			ways := map[string]func() error{}
			const n = 3
			for _, model := range []string{"http", "calls"} {
				ways[model] = func() error {
					status, body, err := s.try("POST", "/v2/models/"+model+"/infer", nil, fmt.Appendf(nil, `{"inputs":[{"name":"N","datatype":"INT32","shape":[1],"data":[%d]}]}`, n))
					if err == nil && (status != http.StatusOK || !strings.Contains(body, fmt.Sprintf(`"data":[%d]`, n))) {
						err = fmt.Errorf("status %d, %s", status, body)
					}
					return err
				}
			}
			ways["events"] = func() error {
				reply, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/v2/models/events/generate_stream", s.http), "application/json", strings.NewReader(fmt.Sprintf(`{"N":%d}`, n)))
				if err != nil {
					return err
				}
				defer reply.Body.Close()
				got := 0
				for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "data: ") {
						got++
					}
				}
				if got != n {
					return fmt.Errorf("got %d events, want %d", got, n)
				}
				return nil
			}
			request := func(model string) *kserve.ModelInferRequest {
				return &kserve.ModelInferRequest{ModelName: model, RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, n)},
					Inputs: []*kserve.ModelInferRequest_InferInputTensor{{Name: "N", Datatype: "INT32", Shape: []int64{1}}}}
			}
			ways["rpc"] = func() error {
				reply, err := dialGRPC(t, s).ModelInfer(t.Context(), request("rpc"))
				if err == nil && (len(reply.RawOutputContents) != 1 || binary.LittleEndian.Uint32(reply.RawOutputContents[0]) != n) {
					err = fmt.Errorf("got %v", reply)
				}
				return err
			}
			for model, responses := range map[string]int{"stream": 1, "responses": n} {
				ways[model] = func() error {
					stream, err := dialGRPC(t, s).ModelStreamInfer(t.Context())
					if err == nil {
						err = stream.Send(request(model))
					}
					if err != nil {
						return err
					}
					for range responses { // the client keeps its side of the stream open
						reply, err := stream.Recv()
						if err != nil {
							return err
						}
						if reply.ErrorMessage != "" {
							return errors.New(reply.ErrorMessage)
						}
					}
					_, err = stream.Recv()
					if err == nil {
						return errors.New("a response too many")
					}
					return nil // a stream with nothing in flight may end in any way
				}
			}
			for way, begin := range ways {
				go func() {
					err := begin()
					if err != nil {
						err = fmt.Errorf("%s: %w", way, err)
					}
					ended <- err
				}()
			}
			bounded, cancel := context.WithTimeout(t.Context(), startLimit)
			defer cancel()
			idle, err := dialGRPC(t, s).ModelStreamInfer(bounded)
			if err != nil {
				t.Fatal(err)
			}
			for _, sign := range []string{"http", "called", "events", "rpc", "stream", "responses"} {
				s.until(sign, func() bool { return hasFile(signs, sign) })
			}
			_ = s.cmd.Process.Signal(unix.SIGTERM)
			s.until("not listening any more", func() bool {
				c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.http))
				if err == nil {
					_ = c.Close()
				}
				return err != nil
			})
			testkit.WriteFiles(t, signs, map[string]string{"gate": ""})
			for range ways {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			if _, err := idle.Recv(); status.Code(err) == codes.OK || status.Code(err) == codes.DeadlineExceeded {
				t.Errorf("the idle stream: got error %v, want its end", err)
			}
			if exit := s.wait(startLimit); exit != 0 {
				t.Errorf("exit status %d, want 0", exit)
			}
		})
	}
}
