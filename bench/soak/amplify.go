package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// amplifiers returns clients whose small requests become large in a careless server, and clients of
// models that make the server hold much memory.
func amplifiers() []hostileClient {
	return []hostileClient{
		{"messages of many empty fields", 3 * time.Second, emptyFields},
		{"calls that are half open", 5 * time.Second, halfOpenCalls},
		{"nested JSON", 4 * time.Second, nestedJSON},
		{"nested JSON in gzip", 4 * time.Second, nestedGzip},
		{"long ids whose reply is not read", 8 * time.Second, longNames},
		{"chats of nested tools", 3 * time.Second, nestedTools},
		{"chats of many small parts", 3 * time.Second, manyParts},
		{"chats that are left", time.Second, leftChats},
		{"loads of long configurations", 5 * time.Second, longConfigs},
		{"connections of one byte", 5 * time.Second, oneByte},
		{"models that keep inputs", 200 * time.Millisecond, hoardInputs},
		{"models of long texts", 300 * time.Millisecond, shoutTexts},
		{"responses that wait for their order", 4 * time.Second, streamOf("ordered", 0, 50_000, 50_000, 50_000)},
		{"responses that wait for a slow step", 4 * time.Second, streamOf("backlog", 50_000, 50_000)},
		{"streams that a model does not read", 2 * time.Second, ignoreStreams},
	}
}

// lures are models that abuse the memory that the server keeps for them.
var lures = []string{"hoards", "shouts", "ordered", "slow", "backlog", "ignores"}

// lure loads these models for the duration of the storm.
func (k *soak) lure(ctx context.Context, _ *rand.Rand) {
	for _, model := range lures {
		k.expect(ctx, "load "+model, "/v2/repository/models/"+model+"/load", "", lostInLoad...)
	}
}

// pauseServer stops the whole server for a while, like a suspended machine.
func (k *soak) pauseServer(ctx context.Context, r *rand.Rand) {
	for pause(ctx, r, 15*time.Second) {
		k.server.Signal(unix.SIGSTOP)
		k.results.event("stop the server for a second")
		pause(context.WithoutCancel(ctx), r, time.Second)
		k.server.Signal(unix.SIGCONT)
	}
}

// repeated returns n times a text between head and tail.
func repeated(head, text string, n int, tail string) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	for range n {
		b.WriteString(text)
	}
	b.WriteString(tail)
	return b.Bytes()
}

// squeezed returns the same, compressed with gzip.
func squeezed(head, text string, n int, tail string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, head) // a buffer accepts everything
	for many := strings.Repeat(text, 1000); n > 0; n -= 1000 {
		_, _ = io.WriteString(w, many)
	}
	_, _ = io.WriteString(w, tail)
	_ = w.Close()
	return b.Bytes()
}

// asIs sends messages that are already compressed.
type asIs struct{ encoding.Compressor }

func (asIs) Name() string { return gzipped }

func (asIs) Compress(w io.Writer) (io.WriteCloser, error) { return unclosed{w}, nil }

func (asIs) Decompress(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

const gzipped = "gzip"

// emptyMessages are messages, by method, of at most a megabyte with a hundred million fields each.
// A field begins with its number and kind and ends with the length of its content.
var emptyMessages = sync.OnceValue(func() map[string][]byte {
	const n = 60_000_000
	value := 2 * n
	entry := 3 + 1 + len(varint(value)) + value // key "x" and a value
	settings := append(append([]byte("\x0a"), varint(entry)...), "\x0a\x01x\x12"...)
	return map[string][]byte{
		"/inference.GRPCInferenceService/TraceSetting":        squeezed(string(append(settings, varint(value)...)), "\x0a\x00", n, ""),
		"/inference.GRPCInferenceService/RepositoryModelLoad": squeezed("", "\x1a\x00", n, ""),
		inferMethod: squeezed("\x0a\x08identity", "\x2a\x00", n, ""),
	}
})

func varint(n int) (b []byte) {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func emptyFields(k *soak, ctx context.Context, _ *rand.Rand) {
	withGRPC(k, nil, func(a *grpcAsker) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		for method, message := range emptyMessages() {
			_ = a.conn.Invoke(ctx, method, message, new([]byte), grpc.ForceCodecV2(rawCodec{}), grpc.UseCompressor(gzipped))
		}
	})
}

// halfOpenCalls opens thousands of calls on each of sixty connections and completes none.
func halfOpenCalls(k *soak, ctx context.Context, r *rand.Rand) {
	const path, kind = "/inference.GRPCInferenceService/ServerLive", "application/grpc"
	head := fmt.Sprintf("\x83\x86\x04%c%s\x01\x01x\x0f\x10%c%s\x00\x02te\x08trailers", len(path), path, len(kind), kind) // RFC 7541
	var calls bytes.Buffer
	calls.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	for id := 1; id < 2*4096; id += 2 {
		calls.Write([]byte{0, 0, byte(len(head)), 1, 4, 0, 0, byte(id >> 8), byte(id)}) // HEADERS with END_HEADERS
		calls.WriteString(head)
	}
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() {
			c := dial(ctx, k.server.grpc, false)
			if c == nil {
				return
			}
			defer c.Close()
			reading := make(chan struct{}) // closed by the goroutine
			go func() {
				defer close(reading)
				_, _ = io.Copy(io.Discard, c)
			}()
			_, _ = c.Write(calls.Bytes())
			wait(ctx, time.Duration(1000+r.IntN(4000))*time.Millisecond)
			_ = c.SetDeadline(time.Unix(1, 0))
			<-reading
		})
	}
	all.Wait()
}

const nest = `[[[[[[[["a"]]]]]]]],`

var nestedBody = sync.OnceValue(func() []byte { return repeated(`["`+nest, nest, 3<<20, `"]`) })

// together sends a request five times at once and reads the replies.
func together(k *soak, ctx context.Context, parts ...[]byte) {
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			c := dial(ctx, k.server.http, false)
			if c == nil {
				return
			}
			defer c.Close()
			for _, part := range parts {
				if _, err := c.Write(part); err != nil {
					break
				}
			}
			_, _ = c.Read(make([]byte, 64<<10))
		})
	}
	all.Wait()
}

func to(path, headers string, length int) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n", path, headers, length)
}

func nestedJSON(k *soak, ctx context.Context, r *rand.Rand) {
	path := []string{"/v2/repository/index", "/v2/models/identity/infer", "/v2/models/chats/generate", "/v2/logging"}[r.IntN(4)]
	together(k, ctx, to(path, "", len(nestedBody())), nestedBody())
}

var nestedBomb = sync.OnceValue(func() []byte {
	return squeezed(`{"inputs":[{"name":"IN","datatype":"UINT8","shape":[1],"data":[`, nest, 3<<20, `1]}]}`)
})

func nestedGzip(k *soak, ctx context.Context, _ *rand.Rand) {
	together(k, ctx, to("/v2/models/identity/infer", "Content-Encoding: gzip\r\n", len(nestedBomb())), nestedBomb())
}

var longText = sync.OnceValue(func() []byte { return bytes.Repeat([]byte("x"), 48<<20) })

// longNames makes replies repeat a long id or a long parameter name, and does not read them.
func longNames(k *soak, ctx context.Context, r *rand.Rand) {
	head, tail := `{"id":"`, `",`+oneNumber+`}`
	if r.IntN(2) == 0 {
		head, tail = `{"parameters":{"`, `":[]},`+oneNumber+`}`
	}
	span := time.Duration(r.IntN(5000)) * time.Millisecond
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			c := dial(ctx, k.server.http, true)
			if c == nil {
				return
			}
			defer c.Close()
			text := longText()
			for _, part := range [][]byte{post("sleeps", "", len(head)+len(text)+len(tail), head), text, []byte(tail)} {
				if _, err := c.Write(part); err != nil {
					return
				}
			}
			wait(ctx, span)
		})
	}
	all.Wait()
}

// chat sends a body to the OpenAI endpoint and reads the reply until patience runs out.
func chat(k *soak, ctx context.Context, body []byte, patience time.Duration) {
	c := dial(ctx, k.server.openai, false)
	if c == nil {
		return
	}
	defer c.Close()
	_, _ = c.Write(to("/v1/chat/completions", "Content-Type: application/json\r\n", len(body)))
	_, _ = c.Write(body)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	_, _ = c.Read(make([]byte, 64<<10))
}

// chatOf returns a chat with additional fields.
func chatOf(head, text string, n int, tail string) []byte {
	return repeated(`{"model":"chats","messages":[{"role":"user","content":"hi"}],`+head, text, n, tail+"}")
}

var toolBodies = sync.OnceValue(func() [][]byte {
	const depth = 80
	deep := strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth)
	function := func(parameters string, n int) []byte {
		return chatOf(`"tool_choice":"none","tools":[`, `{"type":"function","function":{"name":"f","parameters":`+parameters+`}},`, n,
			`{"type":"function","function":{"name":"f","parameters":{}}}]`)
	}
	flat := `{"a":[` + strings.Repeat(`{"":0},`, 1000) + `0]}`
	return [][]byte{function(deep, 1500), function(flat, 1000)}
})

func nestedTools(k *soak, ctx context.Context, r *rand.Rand) {
	chat(k, ctx, toolBodies()[r.IntN(len(toolBodies()))], 10*time.Second)
}

var partBodies = sync.OnceValue(func() [][]byte {
	return [][]byte{
		chatOf(`"stop":[`, `"",`, 3<<20, `"a"]`),
		repeated(`{"model":"chats","messages":[{"role":"user","content":"`, "x", 16<<20, `"}]}`),
		repeated(`{"model":"chats","messages":[{"role":"user","content":"hi"}`, `,{"role":"user","content":"x"}`, 500_000, `]}`),
	}
})

func manyParts(k *soak, ctx context.Context, r *rand.Rand) {
	chat(k, ctx, partBodies()[r.IntN(len(partBodies()))], 10*time.Second)
}

// leftChats disconnects while its chat is rendered.
func leftChats(k *soak, ctx context.Context, r *rand.Rand) {
	chat(k, ctx, toolBodies()[r.IntN(len(toolBodies()))], time.Duration(1+r.IntN(100))*time.Millisecond)
}

var configBodies = sync.OnceValue(func() [][]byte {
	return [][]byte{
		repeated(`{"parameters":{"config":"{\"backend\":\"python\",\"input\":[`, "{},", 3<<20, `{}]}"}}`),
		repeated(`{"parameters":{"config":"{\"backend\":\"python\"}"`, `,"file:1/x":""`, 2<<20, `}}`),
	}
})

func longConfigs(k *soak, ctx context.Context, r *rand.Rand) {
	c := dial(ctx, k.server.http, false)
	if c == nil {
		return
	}
	defer c.Close()
	body := configBodies()[r.IntN(len(configBodies()))]
	_, _ = c.Write(to("/v2/repository/models/shouts/load", "", len(body)))
	_, _ = c.Write(body)
	_, _ = c.Read(make([]byte, 64<<10))
}

// oneByte opens more connections than the server has descriptors, each with the beginning of a
// request.
func oneByte(k *soak, ctx context.Context, r *rand.Rand) {
	address := []string{k.server.http, k.server.grpc, k.server.openai}[r.IntN(3)]
	var all []*socket
	for range 1200 {
		c := dial(ctx, address, false)
		if c == nil {
			break
		}
		_, _ = c.Write([]byte("P"))
		all = append(all, c)
	}
	wait(ctx, time.Duration(r.IntN(3000))*time.Millisecond)
	for _, c := range all {
		c.drop()
	}
}

// hoardInputs sends 4 MiB to a model that keeps it.
func hoardInputs(k *soak, ctx context.Context, _ *rand.Rand) {
	const size = 4 << 20
	json := fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%[1]d}}]}`, size)
	head := post("hoards", fmt.Sprintf("Inference-Header-Content-Length: %d\r\n", len(json)), len(json)+size, json)
	send(k, ctx, append(head, make([]byte, size)...))
}

func shoutTexts(k *soak, ctx context.Context, r *rand.Rand) {
	body := fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"INT32","shape":[1],"data":[%d]}]}`, r.IntN(4))
	c := dial(ctx, k.server.http, true)
	if c == nil {
		return
	}
	span := time.Duration(r.IntN(4000)) * time.Millisecond
	_, _ = c.Write(post("shouts", "", len(body), body))
	go func() { // the reply is not read while other requests arrive
		defer c.Close()
		wait(ctx, span)
	}()
}

// streamOf makes one stream request that many responses from a model, and reads none.
func streamOf(model string, numbersOf ...int32) func(k *soak, ctx context.Context, r *rand.Rand) {
	return func(k *soak, ctx context.Context, _ *rand.Rand) {
		a, err := dialGRPC(k)
		if err != nil {
			return
		}
		go func() {
			defer a.close()
			ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
			defer cancel()
			stream, err := a.client.ModelStreamInfer(ctx)
			if err != nil {
				return
			}
			shape := []int64{1}
			if model == "ordered" {
				shape = []int64{1, 1}
			}
			for _, n := range numbersOf {
				if stream.Send(numbers(question{model: model, shape: shape}, n).message()) != nil {
					return
				}
			}
			<-ctx.Done()
		}()
	}
}

func ignoreStreams(k *soak, ctx context.Context, _ *rand.Rand) {
	withGRPC(k, nil, func(a *grpcAsker) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, _ = a.infer(ctx, numbers(question{model: "ignores", shape: []int64{1}}, 1))
	})
}
