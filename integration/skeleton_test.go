package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestNewModelsAreServed creates models with `nereid new model`, serves them, and expects the
// generated clients to pass.
func TestNewModelsAreServed(t *testing.T) {
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	repository := t.TempDir()
	clients := map[string]string{} // protocol of each model's client
	create := func(grpc bool, name string, flags ...string) {
		command := exec.Command(binary, append([]string{"new", "model", name, "--directory", repository}, flags...)...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("nereid new model %s: %v\n%s", name, err, output)
		}
		clients[name] = map[bool]string{false: "http", true: "grpc"}[grpc]
	}
	create(false, "plain")
	create(false, "batched", "--max-batch-size=8", "--input=FLAGS:BOOL:3", "--output=SAME:BOOL:3", "--output=SCORES:FP16:5")
	create(false, "texts", "--input=A:STRING:2", "--input=B:INT64:2,2", "--output=C:INT64:2,2", "--output=D:STRING:2")
	create(true, "many", "--decoupled", "--max-batch-size=4")
	server := start(t, testkit.Python(t).Path, repository)
	for name, front := range clients {
		t.Run(name, func(t *testing.T) {
			port := map[string]int{"http": server.http, "grpc": server.grpc}[front]
			command := exec.Command(clientPython(t), filepath.Join(repository, name, "client.py"), fmt.Sprintf("--url=127.0.0.1:%d", port))
			if output, err := command.CombinedOutput(); err != nil || !strings.HasSuffix(string(output), "PASS: "+name+"\n") {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}
