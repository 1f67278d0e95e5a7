package rest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/inference"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestEndpointsThatNeedLittleAcceptLittle checks that endpoints with small requests accept a body
// of 1 MiB and reject a larger one.
func TestEndpointsThatNeedLittleAcceptLittle(t *testing.T) {
	path := ""
	s := StartHTTP(t, rest.Config{}, nil, servertest.WithRegions(t, &path))
	body := func(n int) string { return "{" + strings.Repeat(" ", n-2) + "}" }
	for _, path := range []string{
		"/v2/repository/index", "/v2/repository/models/m/unload", "/v2/repository/models/m/instances", "/v2/logging", "/v2/trace/setting",
		"/v2/systemsharedmemory/region/r/register", "/v2/cudasharedmemory/region/r/register",
	} {
		for _, chunked := range []bool{false, true} {
			for _, n := range []int{1 << 20, 1<<20 + 1} {
				c := s.Connect(t)
				if chunked {
					c.Send("POST " + path + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + inChunks(body(n), 1<<16))
				} else {
					c.Send(Text("POST", path, body(n)))
				}
				got := c.Receive("POST")
				refused := got.Status == http.StatusBadRequest && strings.Contains(got.Body, "Use --client-max-small-body-size to increase the limit.")
				if want := n > 1<<20; refused != want {
					t.Errorf("%s with %d bytes, chunked %v: got %.300s, want refused: %v", path, n, chunked, got, want)
				}
				_ = c.Close()
			}
		}
	}
	if got := s.Do(t, "POST", "/v2/repository/models/m/load", body(1<<20+1)); got.Status != http.StatusOK {
		t.Errorf("a load: got %.300s, want 200", got)
	}
}

// TestValuesThatAreSmallByNatureAreBounded checks that values of the maximum length are accepted
// and longer ones rejected, with an error that repeats little of them.
func TestValuesThatAreSmallByNatureAreBounded(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil, func(p *server.Parts, b *servertest.Blocks) {
		b.Account = budget.New(budget.Config{Limit: 1 << 30, Limits: budget.Limits{LoadFiles: 3}})
		p.Memory = b.Account
	})
	const infer, generate, load = "/v2/models/id_uint8/infer", "/v2/models/id_uint8/generate", "/v2/repository/models/m/load"
	of := func(n int) string { return strings.Repeat("x", n) }
	input := `"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[1],"data":[1]}]`
	many := func(n int) string { // parameters of n bytes, with their quotes
		var b strings.Builder
		for i := 0; n > 0; i++ {
			one := n
			if n > 2<<16 {
				one = 1 << 16
			}
			fmt.Fprintf(&b, `,"p%08d":"%s"`, i, of(one-11))
			n -= one
		}
		return b.String()[1:]
	}
	for _, tt := range []struct {
		what, path string
		most       int
		body       func(n int) string
	}{
		{"id", infer, 64 << 10, func(n int) string { return `{"id":"` + of(n) + `",` + input + `}` }},
		{"id", generate, 64 << 10, func(n int) string { return `{"id":"` + of(n) + `","INPUT0":1}` }},
		{"the name of a parameter", infer, 4 << 10, func(n int) string { return `{"parameters":{"` + of(n) + `":1},` + input + `}` }},
		{"the name of a parameter", generate, 4 << 10, func(n int) string { return `{"INPUT0":1,"` + of(n) + `":1}` }},
		{"all parameters together", infer, 1 << 20, func(n int) string { return `{"parameters":{` + many(n) + `},` + input + `}` }},
		{"all parameters together", generate, 1 << 20, func(n int) string { return `{"INPUT0":1,` + many(n) + `}` }},
		{"the name of a parameter", infer, 4 << 10, func(n int) string {
			return `{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[1],"data":[1],"parameters":{"` + of(n) + `":1}}]}`
		}},
		{"the name of a parameter", infer, 4 << 10, func(n int) string {
			return `{` + input + `,"outputs":[{"name":"OUTPUT0","parameters":{"` + of(n) + `":1}}]}`
		}},
		{"all parameters together", infer, 1 << 20, func(n int) string { // of the request, an input and an output
			return `{"parameters":{"a":"` + of(1<<18-3) + `"},` +
				`"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[1],"data":[1],"parameters":{"b":"` + of(1<<18-3) + `"}}],` +
				`"outputs":[{"name":"OUTPUT0","parameters":{"c":"` + of(n-1<<19-3) + `"}}]}`
		}},
		{"load parameter 'config'", load, 1 << 20, func(n int) string { return `{"parameters":{"config":"` + of(n) + `"}}` }},
		{"the name of a load parameter", load, 5 + 4<<10, func(n int) string { return `{"parameters":{"config":"{}","file:` + of(n-5) + `":""}}` }},
	} {
		if got := s.Do(t, "POST", tt.path, tt.body(tt.most)); got.Status != http.StatusOK {
			t.Errorf("%s of %s with %d bytes: got %.200s, want 200", tt.what, tt.path, tt.most, got)
		}
		got := s.Do(t, "POST", tt.path, tt.body(tt.most+1))
		if want := fmt.Sprintf("%s has %d bytes, but at most %d are allowed", tt.what, tt.most+1, tt.most); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, want) {
			t.Errorf("%s of %s with %d bytes: got %.200s, want it refused", tt.what, tt.path, tt.most+1, got)
		}
	}
	for _, name := range []string{`"name":"` + of(5000) + `"`, `"name":"INPUT0","parameters":{"shared_memory_region":"` + of(5000) + `"}`} {
		if got := s.Do(t, "POST", infer, `{"inputs":[{`+name+`,"datatype":"UINT8","shape":[1],"data":[1]}]}`); got.Status != http.StatusBadRequest || len(got.Body) > 1000 {
			t.Errorf("a long name: got %d bytes, %.200s", len(got.Body), got)
		}
	}
	files := `"file:1/a":"","file:1/b":"","file:1/c":""`
	if got := s.Do(t, "POST", load, `{"parameters":{"config":"{}",`+files+`}}`); got.Status != http.StatusOK {
		t.Errorf("three files: got %s, want 200", got)
	}
	if got := s.Do(t, "POST", load, `{"parameters":{"config":"{}",`+files+`,"file:1/d":""}}`); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "more than 3 files") {
		t.Errorf("four files: got %s, want them refused", got)
	}
}

// TestErrorsRepeatLittle checks that an error repeats at most 4 KiB of a request, as JSON, even if
// it repeats several texts of it.
func TestErrorsRepeatLittle(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	for _, text := range []string{"x", `\u0001`, `\"`} {
		id, name := strings.Repeat(text, 32<<10), strings.Repeat(text, 4<<10)
		input := `{"name":"` + name + `","datatype":"UINT8","shape":[1],"data":[1]}`
		got := s.Do(t, "POST", "/v2/models/id_uint8/infer", `{"id":"`+id+`","inputs":[`+input+`,`+input+`]}`)
		const most, around = infer.MaxEcho, len(`{"error":"input '' already exists in request"}`)
		if got.Status != http.StatusBadRequest || !strings.HasSuffix(got.Body, `already exists in request"}`) || len(got.Body) > most+around || len(got.Body) < most/2 {
			t.Errorf("id and name of %s: got %d bytes, %.100s, want at most %d", text, len(got.Body), got, most+around)
		}
	}
}

// TestUnreadRepliesAreCharged checks that large unread replies of each kind are charged to their
// connections until the server closes these.
func TestUnreadRepliesAreCharged(t *testing.T) {
	const size = 16 << 20 // more than the buffers of a socket hold
	core := servertest.NewCore()
	core.Listed = []*kserve.RepositoryIndexResponse_ModelIndex{{Name: "a", Reason: strings.Repeat("x", size)}}
	for _, request := range []string{
		Text("POST", "/v2/repository/index", ""),
		Text("POST", "/v2/models/id_bytes/infer", oneInput("BYTES", "[1]", `"data":["`+strings.Repeat("x", size)+`"]`)),
		Text("POST", "/v2/models/id_bytes/generate", `{"INPUT0":"`+strings.Repeat("x", size)+`"}`),
	} {
		s := StartHTTP(t, rest.Config{Config: http1.Config{WriteTimeout: 500 * time.Millisecond}}, core)
		c := s.Connect(t)
		c.Send(request)
		account, line := s.Blocks.Account, request[:strings.IndexByte(request, '\r')]
		Eventually(t, line+" is charged", func() bool {
			charged := false
			account.Holders(func(h *budget.Holder) bool {
				charged = charged || h.Held(budget.Replies)+h.Held(budget.JSON) >= size && strings.HasSuffix(h.Name(), c.LocalAddr().String())
				return true
			})
			return charged
		})
		Eventually(t, line+" is given up", func() bool { return s.Connections() == 0 && account.Total() == 0 })
	}
}

// TestBodiesAreAttributedToTheirConnections checks that a connection holds its body while it
// arrives, although the pool charges for large bodies.
func TestBodiesAreAttributedToTheirConnections(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	const size = 4 << 20
	c := announce(t, s, 2*size, size)
	held := func() (n int64) {
		s.Blocks.Account.Holders(func(h *budget.Holder) bool {
			n += h.Held(budget.Blocks)
			return true
		})
		return n
	}
	Eventually(t, "the body is attributed", func() bool { return held() >= size })
	c.Send(strings.Repeat("x", size))
	if got := c.Receive("POST"); got.Status != http.StatusOK {
		t.Errorf("got %.200s, want 200", got)
	}
	Eventually(t, "nothing is attributed after the reply", func() bool { return held() == 0 })
}

// TestLargeRepliesNeedMemory checks that a large reply fails while the account is full, and a small
// one does not.
func TestLargeRepliesNeedMemory(t *testing.T) {
	core := servertest.NewCore()
	core.Listed = []*kserve.RepositoryIndexResponse_ModelIndex{{Name: "a", Reason: strings.Repeat("x", 1<<20)}}
	s := StartHTTP(t, rest.Config{}, core)
	full := s.Blocks.Account.Most(budget.Replies)
	if err := s.Blocks.Account.Take(budget.Replies, full); err != nil {
		t.Fatal(err)
	}
	defer s.Blocks.Account.Give(budget.Replies, full)
	if got := s.Do(t, "POST", "/v2/repository/index", ""); got.Status != http.StatusServiceUnavailable || !strings.Contains(got.Body, "in use, ") {
		t.Errorf("a large reply without memory: got %.300s, want 503", got)
	}
	if got := s.Do(t, "POST", "/v2/models/none/infer", "{}"); got.Status != http.StatusNotFound {
		t.Errorf("a small reply without memory: got %.300s, want 404", got)
	}
}

// TestAttacksStayWithinTheirCharge sends five bodies at once that need the most memory for their
// size, and checks that the live heap stays within a bound given by the charges.
func TestAttacksStayWithinTheirCharge(t *testing.T) {
	const size = 4 << 20
	nested := strings.Repeat("[", 98) + `"` + strings.Repeat("a", 926) + `"` + strings.Repeat("]", 98) + ","
	for _, tt := range []struct{ name, path, begin, unit, end string }{
		{"nested arrays", "/v2/models/id_uint8/infer", `{"x":[`, nested, `0]}`},
		{"empty objects as parameters", "/v2/models/id_uint8/infer", `{"parameters":{`, `"":{},`, `"a":1}}`},
		{"empty objects as inputs", "/v2/models/id_uint8/infer", `{"inputs":[`, `{},`, `{}]}`},
		{"dimensions", "/v2/models/id_uint8/infer", `{"inputs":[{"name":"INPUT0","datatype":"UINT8","data":[1],"shape":[`, `1,`, `1]}]}`},
		{"empty strings", "/v2/models/id_bytes/generate", `{"INPUT0":[`, `"",`, `""]}`},
		{"files of a load", "/v2/repository/models/m/load", `{"parameters":{"config":"{}"`, `,"file:a":""`, `}}`},
		{"an index", "/v2/repository/index", `[`, nested, `0]`},
		{"levels of traces", "/v2/trace/setting", `{"trace_level":[`, `"",`, `""]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := StartHTTP(t, rest.Config{}, nil)
			unit := []byte(strings.Repeat(tt.unit, (64<<10)/len(tt.unit)))
			n := size / len(unit)
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
				tt.path, len(tt.begin)+n*len(unit)+len(tt.end), tt.begin)
			var clients sync.WaitGroup
			peak := testkit.PeakHeap(s.Blocks.Account.Total, func() {
				for range 5 {
					c := s.Dial(t)
					clients.Go(func() {
						_, _ = io.WriteString(c, head)
						for range n {
							_, _ = c.Write(unit)
						}
						_, _ = io.WriteString(c, tt.end)
						_, _ = io.Copy(io.Discard, c)
					})
				}
				clients.Wait()
			})
			if peak.Live > 2*peak.Charged+32<<20 {
				t.Errorf("%d MiB are live and %d MiB charged", peak.Live>>20, peak.Charged>>20)
			}
			t.Logf("%d MiB live, %d MiB charged", peak.Live>>20, peak.Charged>>20)
		})
	}
}

// TestPagesOfOtherSitesChangeNothing checks that requests that change the server are rejected if
// their headers show that a browser sends them for another site.
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	path := ""
	s := StartHTTP(t, rest.Config{AllowOrigins: []string{"https://good.example"}}, nil, servertest.WithRegions(t, &path))
	for _, tt := range []struct {
		path   string
		header []string
		want   int
	}{
		{"/v2/repository/models/m/unload", nil, 200},
		{"/v2/repository/models/m/unload", []string{"Sec-Fetch-Site: same-origin"}, 200},
		{"/v2/repository/models/m/unload", []string{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example", "Content-Type: text/plain"}, 403},
		{"/v2/repository/models/m/unload", []string{"Sec-Fetch-Site: cross-site", "Origin: https://good.example"}, 200},
		{"/v2/repository/models/m/load", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"/v2/repository/models/m/instances", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"/v2/logging", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"/v2/trace/setting", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"/v2/models/batch/trace/setting", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"/v2/systemsharedmemory/region/r/register", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"/v2/systemsharedmemory/unregister", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"/v2/repository/index", []string{"Sec-Fetch-Site: cross-site"}, 200},
	} {
		if got := s.Do(t, "POST", tt.path, "", tt.header...); got.Status != tt.want {
			t.Errorf("%s %q: got %s, want %d", tt.path, tt.header, got, tt.want)
		}
	}
	s = StartHTTP(t, rest.Config{AllowOrigins: []string{"*"}}, nil)
	if got := s.Do(t, "POST", "/v2/repository/models/m/unload", "", "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"); got.Status != 403 {
		t.Errorf("where all origins are allowed: got %s, want 403", got)
	}
}

// TestSmallRepliesAreCompressedForASingleCodingOnly checks that a small reply is compressed only if
// the client accepts a single coding, and a large one also if it accepts several.
func TestSmallRepliesAreCompressedForASingleCodingOnly(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	for _, tt := range []struct {
		size         int
		accept, want string
	}{
		{4, "gzip, deflate", ""}, {4, "gzip", "gzip"}, {4, "deflate", "deflate"}, {4000, "gzip, deflate", "gzip"}, {4000, "identity", ""},
	} {
		got := s.Infer(t, "id_uint8", binaryInput(tt.size), strings.Repeat("x", tt.size), "Accept-Encoding: "+tt.accept)
		if coding := got.Header.Get("Content-Encoding"); got.Status != http.StatusOK || coding != tt.want || got.Header.Get(inference.HeaderLengthName) == "" {
			t.Errorf("%d bytes for %q: got status %d in coding %q, want %q", tt.size, tt.accept, got.Status, coding, tt.want)
		}
	}
}
