package completion_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/cli/completion"
	"github.com/nereid-serving/nereid/internal/testkit"
)

var withModels = command.Description{
	Name: "prog", Call: "prog [options]",
	Flags: []command.Flag{
		{Name: "load-model", Value: "<string>", Models: true}, {Name: "model-repository", Value: "<string>", Help: "A directory."},
	},
	Commands: []command.Description{
		{Name: "load", Call: "prog load MODEL [options]", Flags: []command.Flag{
			{Name: "url", Value: "ADDRESS"}, {Name: "input-record", Value: "DIRECTORY"}, {Name: "way", Value: "string", Values: []string{"fast", "slow"}},
		}},
		{Name: "again", Call: "prog again DIRECTORY [options]", Flags: []command.Flag{{Name: "model", Value: "MODEL", Models: true}, {Name: "url", Value: "ADDRESS"}}},
	},
}

// TestModelsAreCompleted checks that model names come from the directories on the command line, or
// else from the server.
func TestModelsAreCompleted(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		_, _ = w.Write([]byte(`[{"name":"zebra","version":"1","state":"READY"},{"name":"ape","version":"1"},{"name":"ape","version":"2"},` +
			`{"name":"$(touch x)"},{"name":"-flag"},{"name":"two words"},{"name":"line\nbreak"}]`))
	}))
	defer server.Close()
	folder := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"models/add/config.pbtxt": "", "models/art/1/model.py": "", "models/notes/readme.txt": "", "models/.git/1/x": "", "models/$(id)/config.pbtxt": "",
		"records/greeter/20260101-1.record": "", "empty/readme": "",
	})
	t.Chdir(folder)
	address := strings.TrimPrefix(server.URL, "http://")
	for _, test := range []struct{ line, want string }{
		{"load --url " + address + " ", "ape zebra"},
		{"load --url=" + server.URL + "/ z", "zebra"},
		{"load --url " + address + " --input-record records ", "greeter"},
		{"load --url " + address + " --input-record empty a", "ape"},
		{"load --url " + address + " ape ", ""}, // the command line already has its model
		{"load ape --way ", "fast slow"},
		{"load ape --way=s", "--way=slow"},
		{"load --url 127.0.0.1:1 ", ""},
		{"again records --model ", "greeter"},
		{"again records --model=g", "--model=greeter"},
		{"again records --model x", ""},
		{"again empty --url " + address + " --model a", "ape"},
		{"again empty --model a", ""}, // no server was named
		{"--model-repository models --load-model ", "add art"},
		{"--model-repository=models --load-model=ar", "--load-model=art"},
	} {
		var out, errs strings.Builder
		if status := completion.Run(append([]string{"candidates", "--"}, strings.Split(test.line, " ")...), func() command.Description { return withModels }, &out, &errs); status != 0 {
			t.Fatalf("%q: got status %d and %q", test.line, status, errs.String())
		}
		var words []string
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n")[1:] {
			word, _, _ := strings.Cut(line, "\t")
			words = append(words, word)
		}
		if got := strings.Join(words, " "); got != test.want {
			t.Errorf("%q: got %q, want %q", test.line, got, test.want)
		}
	}
	for _, request := range asked {
		if request != "POST /v2/repository/index" {
			t.Errorf("the server was asked %q", request)
		}
	}
}
