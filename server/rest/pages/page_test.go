package pages_test

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/rest/pages"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestNamesOfModelsAreTexts checks that a model's name with HTML and a terminal escape sequence is
// escaped.
func TestNamesOfModelsAreTexts(t *testing.T) {
	p := pages.Page{
		Addresses: []string{"gRPC: port 8001", "Page: http://127.0.0.1:8003"}, Left: 3,
		Models: []pages.Model{{Name: "<b>&\"\x1b[2J", Inputs: []string{"<i> INT32 [1]"}}},
	}
	text := string(p.Text())
	for _, want := range []string{"gRPC: port 8001\n", "  <b>&\"?[2J: <i> INT32 [1] -> nothing\n", "  and more: see /v2/repository/index\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text is\n%s\nwant %q in it", text, want)
		}
	}
	page := string(p.HTML())
	for _, want := range []string{"&lt;b&gt;&amp;&#34;", `href="/v2/models/%3Cb%3E&amp;%22%1B%5B2J/config"`, "&lt;i&gt; INT32 [1] → nothing", "<p>and more</p>", "<p>gRPC: port 8001</p>", `<p>Page: <a href="http://127.0.0.1:8003">http://127.0.0.1:8003</a></p>`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page is\n%s\nwant %q in it", page, want)
		}
	}
	for _, not := range []string{"<b>", "<i>"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q of a model's name", not)
		}
	}
	if !strings.Contains(string(pages.Page{}.Text()), "Models that are ready:\n  none\n") || !strings.Contains(string(pages.Page{}.HTML()), "<p>none</p>") {
		t.Error("a page without models does not say so")
	}
}
