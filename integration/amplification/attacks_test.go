package amplification

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	goodModel  = "echo"
	spareModel = "spare"   // loaded and unloaded by the attacks
	numbers    = "numbers" // a model with numeric tensors of the same names
	textInput  = "text_input"
	textOutput = "text_output"

	// largeBody exceeds the size limit of small endpoints, and smallBody just fits.
	largeBody = 2 << 20
	smallBody = 1<<20 - 4<<10

	parameterBytes = 48 << 10 // size of a parameter that the server knows

	halfCalls    = 4000 // per connection
	halfRequests = 256
)

var (
	bodyVolleys   = []volley{{6, largeBody}, {18, smallBody}}
	unreadVolleys = []volley{{20, largeBody}, {40, smallBody}}
	codings       = []string{"", "gzip", "deflate"}
)

// attacksOn returns all attacks in a fixed order.
func attacksOn(to *target) (list []attack) {
	seen := map[string]bool{}
	list = attacksOverGRPC(to.Addresses["gRPC"], seen)
	endpoints, err := described(to.Document)
	if err != nil {
		panic(err)
	}
	for _, e := range slices.Concat(endpoints, plain(inferenceOf(endpoints))) {
		list = append(list, attacksOverHTTP(to, e, seen)...)
	}
	slices.SortStableFunc(list, func(a, b attack) int { return cmp.Or(cmp.Compare(a.Entry, b.Entry), cmp.Compare(a.Kind, b.Kind)) })
	return list
}

// few reports whether the i-th form of a message is skipped because another entry point receives
// the same message.
func few(i int, seen bool) bool { return seen && i%5 != 0 }

// sampled reports whether the i-th attack is run. The race detector makes attacks several times
// slower, so only one in sampleApart runs with it. AMPLIFICATION_APART overrides the interval.
func sampled(i int) bool {
	apart := 1
	if raceEnabled {
		apart = sampleApart
	}
	if n, err := strconv.Atoi(os.Getenv("AMPLIFICATION_APART")); err == nil && n > 0 {
		apart = n
	}
	return i%apart == 0
}

const sampleApart = 61

// oneOfEach chooses one attack for each position in the messages of an entry point, so that a
// sample includes every field. Which one depends on the names alone.
func oneOfEach(attacks []attack) (chosen []bool) {
	chosen = make([]bool, len(attacks))
	for first := 0; first < len(attacks); {
		position, _, _ := strings.Cut(attacks[first].Kind, ": ")
		last := first
		for last < len(attacks) && strings.HasPrefix(attacks[last].Kind+": ", position+": ") {
			last++
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(attacks[first].Entry + position))
		chosen[first+int(h.Sum32())%(last-first)] = true
		first = last
	}
	return chosen
}

// inferenceOf returns the schema of an inference body.
func inferenceOf(endpoints []endpoint) *schema {
	for _, e := range endpoints {
		if strings.HasSuffix(e.path, "/"+goodModel+"/infer") {
			return e.schema
		}
	}
	return nil
}

// plain returns the endpoints that the OpenAPI document does not describe, mostly those of front
// ends other than REST. covers compares them with the paths in the sources.
func plain(inference *schema) (list []endpoint) {
	load := &schema{Type: "object", Properties: map[string]*schema{"model_name": {Type: "string"}, "url": {Type: "string"}}}
	for _, row := range []struct {
		front, method, paths string
		schema               *schema
	}{
		{"OpenAI", "GET", "/v1/models /v1/models/{model} /health/ready /metrics", nil},
		{"OpenAI", "POST", "/v1/models/{model}/load /v1/models/{model}/unload", nil},
		{"SageMaker", "GET", "/ping /models /models/{model}", nil},
		{"SageMaker", "POST", "/invocations /models/{hash}/invoke", inference},
		{"SageMaker", "POST", "/models", load},
		{"SageMaker", "DELETE", "/models/{model}", nil},
		{"Vertex AI", "GET", healthRoute, nil},
		{"Vertex AI", "POST", predictRoute, inference},
		{"metrics", "GET", "/metrics /status /status?lines=1000000", nil},
		{"page", "GET", "/ /models/{model} /models/{model}/versions/1 /log /errors /static/x", nil},
		{"page", "POST", "/models/{model}/infer /models/{model}/load /models/{model}/unload /models/{model}/instances", nil},
		{"REST", "GET", "/docs /openapi.json", nil},
	} {
		for path := range strings.FieldsSeq(row.paths) {
			list = append(list, endpoint{front: row.front, method: row.method, path: path, schema: row.schema, binary: binaryMark(row.front), form: row.front == "page" && row.method == "POST"})
		}
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings"} {
		list = append(list, endpoint{front: "OpenAI", method: "POST", path: path, schema: openAISchema(path)})
	}
	return list
}

// binaryMark returns the start of the header with the length of the JSON before binary tensors.
func binaryMark(front string) string {
	switch front {
	case "SageMaker":
		return "Content-Type: application/vnd.sagemaker-triton.binary+json;json-header-size="
	case "Vertex AI":
		return "Content-Type: application/vnd.vertex-ai-triton.binary+json;json-header-size="
	}
	return "Inference-Header-Content-Length: "
}

// parameterNames finds the known parameters: the names that the inference reader compares with, and
// the names with Triton's prefix.
var parameterNames = sync.OnceValue(func() (names []string) {
	inspect("server/rest/inference", func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if literal, text := call.Args[0].(*ast.BasicLit); ok && text && method.Sel.Name == "Is" {
			name, _ := strconv.Unquote(literal.Value)
			names = append(names, name)
		}
	})
	names = append(names, literalsIn("server/grpc/message", isReserved)...)
	slices.Sort(names)
	return slices.Compact(names)
})

var isReserved = regexp.MustCompile(`^triton_[a-z_]+$`)

// openAISchema returns a schema with each field that package openai reads, at the top level and in
// the lists of messages and tools, with any value.
func openAISchema(path string) *schema {
	example := map[string]any{"model": goodModel, "prompt": "a"}
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		example = map[string]any{"model": goodModel, "messages": []any{map[string]any{"role": "user", "content": "a"}}, "tool_choice": "none"}
	case strings.HasSuffix(path, "/embeddings"):
		example = map[string]any{"model": goodModel, "input": "a"}
	}
	s := &schema{Type: "object", Properties: map[string]*schema{}, Examples: []any{example}}
	for _, name := range fieldsRead("server/openai") {
		s.Properties[name] = &schema{list: true}
	}
	if !strings.HasSuffix(path, "/chat/completions") {
		return s
	}
	if m := s.Properties["messages"]; m != nil {
		m.list, m.Items = false, &schema{Type: "object", Properties: map[string]*schema{"content": {}}, Examples: []any{map[string]any{"role": "user", "content": "a"}}}
	}
	if tools := s.Properties["tools"]; tools != nil {
		function := &schema{Type: "object", Properties: map[string]*schema{"parameters": {}}, Examples: []any{map[string]any{"name": "f"}}}
		tools.list, tools.Items = false, &schema{Type: "object", Properties: map[string]*schema{"function": function}, Examples: []any{map[string]any{"type": "function"}}}
	}
	return s
}

// fieldsRead finds the JSON fields that a package reads: the first arguments of calls to the
// methods of its type named fields.
func fieldsRead(folder string) (names []string) {
	readers := map[string]bool{}
	inspect(folder, func(n ast.Node) {
		if f, ok := n.(*ast.FuncDecl); ok && f.Recv != nil {
			if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok && fmt.Sprint(star.X) == "fields" {
				readers[f.Name.Name] = true
			}
		}
	})
	inspect(folder, func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if literal, text := call.Args[0].(*ast.BasicLit); ok && text && readers[method.Sel.Name] && literal.Kind == token.STRING {
			name, _ := strconv.Unquote(literal.Value)
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// pathsIn finds string literals in a package that look like endpoint paths.
func pathsIn(folder string) []string { return literalsIn(folder, isPath) }

// literalsIn finds string literals in a package that match pattern.
func literalsIn(folder string, pattern *regexp.Regexp) (texts []string) {
	inspect(folder, func(n ast.Node) {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, _ := strconv.Unquote(literal.Value); pattern.MatchString(text) {
				texts = append(texts, text)
			}
		}
	})
	slices.Sort(texts)
	return slices.Compact(texts)
}

var isPath = regexp.MustCompile(`^/(?:[a-z0-9_]+/)*[a-z0-9_]+$`)

// inspect calls see for each syntax node of the sources in a folder of the repository.
func inspect(folder string, see func(ast.Node)) {
	paths, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
	if err != nil || len(paths) == 0 {
		panic(fmt.Sprintf("no sources in %s: %v", folder, err))
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			panic(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			see(n)
			return true
		})
	}
}
