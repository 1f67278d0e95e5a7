package flags_test

import (
	stdflag "flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli/flags"
)

var update = stdflag.Bool("update", false, "rewrite the generated parts of docs/operations.md and of the chart's values.schema.json")

// The generated part of docs/operations.md lies between these lines.
const (
	tablesBegin = "<!-- Generated from the settings table: go test ./cli/flags -run TestGenerated -update -->\n"
	tablesEnd   = "<!-- End of the generated tables -->\n"
)

// TestGeneratedDocuments compares docs/operations.md and the schema of the chart's server.flags
// with the settings tables.
func TestGeneratedDocuments(t *testing.T) {
	const operations, schema = "../../docs/operations.md", "../../deploy/helm/nereid/values.schema.json"
	generated(t, operations, tablesBegin, tablesEnd, flags.FlagTables())
	const settings = "<!-- Generated from the settings of %s: go test ./cli/flags -run TestGenerated -update -->\n"
	for _, backend := range []string{"backend/python", "backend/native"} {
		generated(t, operations, fmt.Sprintf(settings, backend), tablesEnd, flags.SettingTable(backend))
	}
	generated(t, schema, `        "flags": {`+"\n", `        "extraArgs": {`+"\n", flags.FlagsSchema(t))
}

// generated compares the part of a file between two lines with the wanted text, or replaces it.
func generated(t *testing.T, path, begin, end, want string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	got, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s: no lines %q and %q", path, begin, end)
	}
	if got == want {
		return
	}
	if !*update {
		t.Errorf("%s differs from the settings table: run go test ./cli/flags -run TestGenerated -update", path)
		return
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
