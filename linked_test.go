package nereid_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/sdk"
)

// doubler is a backend whose models return twice their INT32 input X.
type doubler struct{}

func newDoubler(*sdk.BackendEnv) (sdk.Backend, error) { return doubler{}, nil }

func (doubler) Attributes() sdk.Attributes                         { return sdk.Attributes{} }
func (doubler) NewModel(*sdk.ModelEnv) (sdk.Model, error)          { return doubler{}, nil }
func (doubler) NewInstance(*sdk.InstanceEnv) (sdk.Instance, error) { return doubler{}, nil }
func (doubler) Close()                                             {}

func (doubler) Execute(_ context.Context, requests []*sdk.Request) error {
	for _, r := range requests {
		answerDouble(r)
		_ = r.Release(sdk.ReleaseAll)
	}
	return nil
}

func answerDouble(r *sdk.Request) {
	p, err := r.NewResponse()
	if err != nil {
		return
	}
	in, err := r.Input("X")
	if err == nil {
		var out []byte
		if out, err = p.Output("Y", in.DataType(), in.Shape()); err == nil {
			for i, b := range in.Data() {
				out[i] = 2 * b
			}
		}
	}
	_ = p.Send(sdk.SendFinal, err)
}

// TestLinkedBackendServes serves a model whose backend is part of this program, and checks that
// nothing is left behind.
func TestLinkedBackendServes(t *testing.T) {
	o := options(t, repository(t, ""))
	nereid.WithBackend("doubler", newDoubler)(&o)
	config := filepath.Join(o.Repository.Paths[0], "double", "config.pbtxt")
	if err := os.WriteFile(config, []byte(strings.Replace(doubleConfig, `"python"`, `"doubler"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s, stop, ended := serve(t, o)
	body := `{"inputs":[{"name":"X","datatype":"INT32","shape":[3],"data":[1,2,3]}]}`
	status, answer := request(t, "http://"+s.HTTPAddr().String()+"/v2/models/double/infer", body)
	if status != http.StatusOK || !strings.Contains(answer, `"data":[2,4,6]`) {
		t.Errorf("got status %d, %s, want 2, 4, 6", status, answer)
	}
	status, answer = request(t, "http://"+s.HTTPAddr().String()+"/v2/models/double/stats", "")
	if status != http.StatusOK || !strings.Contains(answer, `"inference_count":1,"execution_count":1`) {
		t.Errorf("got status %d, %s, want one inference and one execution", status, answer)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: got error %v, want none", err)
	}
}

// A custom program with a linked backend has cli.Main(nereid.WithBackend("doubler", newDoubler)) as
// its main function; a program that embeds a server extends its options.
func ExampleWithBackend() {
	options := nereid.Defaults()
	options.Repository.Paths = []string{"/srv/models"}
	nereid.WithBackend("doubler", newDoubler)(&options)
	server, err := nereid.New(options)
	if err != nil {
		return
	}
	defer server.Close()
	_ = server.Run(context.Background())
}
