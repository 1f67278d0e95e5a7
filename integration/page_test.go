package integration

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// screenshots names the environment variable with the folder in which the test keeps screenshots of
// the page.
const screenshots = "NEREID_TEST_SCREENSHOTS"

// browser is a tab of a headless Chromium. It records problems of its pages: exceptions, dialogs,
// and violations of the content security policy.
type browser struct {
	t       *testing.T
	ctx     context.Context
	url     string // address of the page
	folder  string // for screenshots
	mu      sync.Mutex
	trouble []string
}

// openBrowser starts a Chromium in which evil.example resolves to this machine. Without a Chromium
// it skips the test.
func openBrowser(t *testing.T, url string) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("there is no Chromium here: apt-get install chromium-headless-shell brings one")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1250, 900),
		chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1"), chromedp.WSURLReadTimeout(startLimit))
	process, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	b := &browser{t: t, url: url, folder: os.Getenv(screenshots)}
	var closeTab context.CancelFunc
	b.ctx, closeTab = chromedp.NewContext(process, chromedp.WithListener(b.notice))
	t.Cleanup(closeTab)
	if b.folder == "" {
		b.folder = t.TempDir()
	} else if err := os.MkdirAll(b.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	// The browser lives as long as the context of its first command, so this command has no
	// deadline.
	if _, err := chromedp.Call(b.ctx, cdplog.Enable, cdp.Empty{}); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	return b
}

func (b *browser) notice(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.trouble = append(b.trouble, "exception: "+e.ExceptionDetails.Text)
	case *page.EventJavascriptDialogOpening:
		b.trouble = append(b.trouble, "dialog: "+e.Message)
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError {
			b.trouble = append(b.trouble, string(e.Entry.Source)+": "+e.Entry.Text)
		}
	}
}

// noTrouble fails the test if a page has had a problem since the last call.
func (b *browser) noTrouble() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.trouble {
		b.t.Errorf("in the browser: %s", text)
	}
	b.trouble = nil
}

func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, startLimit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// tell runs a command of the DevTools protocol.
func tell[P, R any](b *browser, command cdp.Command[P, R], parameters P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, startLimit)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, parameters); err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
}

func (b *browser) visit(path string) {
	b.t.Helper()
	b.do("visit "+path, chromedp.Navigate(b.url+path), chromedp.WaitReady("footer"))
}

// script returns the value of a JavaScript expression as text.
func (b *browser) script(expression string) string {
	b.t.Helper()
	text, err := b.evaluate(expression)
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return text
}

func (b *browser) evaluate(expression string) (string, error) {
	ctx, cancel := context.WithTimeout(b.ctx, startLimit)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[string]("(async () => String(await ("+expression+")))()", chromedp.EvalAwaitPromise))
}

// until waits until a JavaScript expression is true on the current page.
func (b *browser) until(expression string) {
	b.t.Helper()
	last := ""
	defer func() {
		if b.t.Failed() {
			b.t.Logf("waited for %s, which was %s", expression, last)
		}
	}()
	testkit.Eventually(b.t, startLimit, func() bool {
		text, err := b.evaluate("Boolean(" + expression + ")") // fails while the page is being replaced by the next
		last = fmt.Sprint(text, err)
		return err == nil && text == "true"
	})
}

// shoot takes screenshots of the whole page, light and dark, and checks the contrast of all text in
// both.
func (b *browser) shoot(name string) {
	b.t.Helper()
	for _, mode := range []string{"light", "dark"} {
		tell(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: mode}}})
		ctx, cancel := context.WithTimeout(b.ctx, startLimit)
		picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		cancel()
		if err != nil {
			b.t.Fatalf("picture of %s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(b.folder, name+"-"+mode+".png"), picture, 0o644); err != nil {
			b.t.Fatal(err)
		}
		if faint := b.script(faintTexts); faint != "" {
			b.t.Errorf("%s, %s: texts with a contrast below 4.5: %s", name, mode, faint)
		}
	}
}

// faintTexts lists the texts of a page whose contrast is below WCAG's 4.5.
const faintTexts = `(() => {
	const channels = (c) => c.match(/[\d.]+/g).map(Number);
	const luminance = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const faint = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const text = walk.currentNode.textContent.trim(), of = walk.currentNode.parentElement;
		if (!text || !of.checkVisibility() || of.closest("script,.skip")) continue;
		let ground = of;
		while (ground && (channels(getComputedStyle(ground).backgroundColor)[3] ?? 1) === 0) ground = ground.parentElement;
		const a = luminance(channels(getComputedStyle(of).color)), b = luminance(channels(getComputedStyle(ground || document.body).backgroundColor));
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < 4.5) faint.add(text.slice(0, 20) + " " + contrast.toFixed(2));
	}
	return [...faint].join(", ");
})()`

// unnamed lists the fields and buttons that have no name for screen readers.
const unnamed = `[...document.querySelectorAll("input:not([type=hidden]),textarea,button,a,select")].filter((e) =>
	!(e.labels && e.labels.length) && !e.getAttribute("aria-label") && !e.textContent.trim()).map((e) => e.outerHTML).join(" ")`

// evilModel is the name of a model that would run a script if a page treated it as markup.
const evilModel = `<img src=x onerror=alert(1)>`

// painter is a model that returns a PNG, raw pixels as bytes and as floats, a sound, numbers and
// markup.
const painter = `
import base64
import io
import wave

import numpy as np
import triton_python_backend_utils as pb_utils

PNG = base64.b64decode("PICTURE")

def beep():
    file = io.BytesIO()
    with wave.open(file, "wb") as w:
        w.setparams((1, 2, 8000, 0, "NONE", ""))
        w.writeframes((np.sin(np.arange(4000) / 3) * 9000).astype("<i2").tobytes())
    return file.getvalue()

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode()
            pb_utils.Logger.log_error("asked for " + text)
            if text == "raise":
                raise ValueError("<script>alert(2)</script>")
            y, x = np.mgrid[0:96, 0:128]
            pixels = np.stack([2 * x, 2 * y, 255 - x - y], -1).astype(np.uint8)
            answers.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("PICTURE", np.array([PNG], dtype=np.object_)),
                pb_utils.Tensor("PIXELS", pixels),
                pb_utils.Tensor("MARKUP", np.array([("<script>alert(3)</script>" + text).encode()], dtype=np.object_)),
                pb_utils.Tensor("NUMBERS", np.arange(6, dtype=np.float32).reshape(2, 3) / 4),
                pb_utils.Tensor("FLOATS", np.linspace(0, 1, 3 * 24 * 32, dtype=np.float32).reshape(3, 24, 32)),
                pb_utils.Tensor("SOUND", np.array([beep()], dtype=np.object_)),
            ]))
        return answers
`

// smallPicture returns a PNG of 16 x 16 pixels as base64.
func smallPicture(t *testing.T) string {
	t.Helper()
	picture := image.NewGray(image.Rect(0, 0, 16, 16))
	for i := range picture.Pix {
		picture.Pix[i] = byte(i)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

const painterConfig = `backend: "python"
input { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }
output [ { name: "PICTURE" data_type: TYPE_STRING dims: [ 1 ] }, { name: "PIXELS" data_type: TYPE_UINT8 dims: [ -1, -1, 3 ] },
         { name: "MARKUP" data_type: TYPE_STRING dims: [ 1 ] }, { name: "NUMBERS" data_type: TYPE_FP32 dims: [ 2, 3 ] },
         { name: "FLOATS" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] }, { name: "SOUND" data_type: TYPE_STRING dims: [ 1 ] } ]
`

// TestPageInABrowser uses the page in a real browser: in light and dark mode, with requests by
// keyboard, live figures, an unload and a load, without scripts, and from other sites. There must
// be no exception, no dialog, and no policy violation.
func TestPageInABrowser(t *testing.T) {
	testkit.Story(t)
	port := testkit.Port(t)
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	b := openBrowser(t, url)
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"painter/config.pbtxt": painterConfig, "painter/1/model.py": strings.Replace(painter, "PICTURE", smallPicture(t), 1),
		"batched/config.pbtxt": "max_batch_size: 8\n" + oneFloat, "batched/1/model.py": executing("pass"),
		"broken/config.pbtxt": oneFloat, "broken/1/model.py": "raise RuntimeError('no weights here')\n",
		evilModel + "/config.pbtxt": oneFloat, evilModel + "/1/model.py": executing("pass"),
	}), "--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false", "--strict-readiness=false", "--http-ui=true", fmt.Sprintf("--http-ui-port=%d", port))

	t.Run("models", func(t *testing.T) {
		b.t = t
		b.visit("/")
		if text := b.script("document.body.innerText"); !strings.Contains(text, "2 ready") || !strings.Contains(text, evilModel) || !strings.Contains(text, "no weights here") {
			t.Errorf("the page says\n%s\nwant two models that are ready, the name of markup, and why one is not ready", text)
		}
		b.shoot("models")
		b.do("follow a link", chromedp.Click(`//a[text()="broken"]`), chromedp.WaitReady(`pre.trace`))
		if text := b.script(`document.querySelector("pre.trace").innerText`); !strings.Contains(text, "model.py(1)") && !strings.Contains(text, "line 1") {
			t.Errorf("the reason is %q, want the traceback", text)
		}
		b.shoot("broken")
		b.visit("/models/" + strings.NewReplacer("<", "%3C", ">", "%3E", " ", "%20", "=", "%3D").Replace(evilModel))
		b.noTrouble()
	})

	t.Run("request by keyboard", func(t *testing.T) {
		b.t = t
		b.visit("/models/painter")
		if list := b.script(unnamed); list != "" {
			t.Errorf("without a name: %s", list)
		}
		b.do("on a telephone", chromedp.EmulateViewport(400, 800))
		if over := b.script(`document.documentElement.scrollWidth - innerWidth`); over != "0" {
			t.Errorf("on a telephone %s pixels are beside the screen, want none", over)
		}
		b.do("on a desk", chromedp.EmulateViewport(1250, 900))
		b.do("to the text", chromedp.KeyEvent(kb.Tab))
		if first := b.script("document.activeElement.className"); first != "skip" {
			t.Errorf("the first stop is %q, want the link to the content", first)
		}
		for range 40 {
			if b.script("document.activeElement.id") == "values-0" {
				break
			}
			b.do("tab", chromedp.KeyEvent(kb.Tab))
		}
		if outline := b.script(`getComputedStyle(document.activeElement).outlineStyle`); outline != "solid" {
			t.Errorf("the focus is shown as %q, want an outline", outline)
		}
		b.do("type", chromedp.KeyEvent(kb.End+"!"))
		for range 10 {
			if b.script("document.activeElement.textContent") == "Send" {
				break
			}
			b.do("tab", chromedp.KeyEvent(kb.Tab))
		}
		b.do("send", chromedp.KeyEvent(" "))
		b.until(`document.activeElement.id === "answer" && document.querySelectorAll("#answer img").length === 3`)
		if text := b.script(`document.getElementById("answer").innerText`); !strings.Contains(text, "<script>alert(3)</script>hello!") || !strings.Contains(text, "0.75  1.0  1.25") {
			t.Errorf("the answer is\n%s\nwant the text and the numbers", text)
		}
		b.until(`[...document.querySelectorAll("#answer img")].every((i) => i.complete)`)
		if sizes := b.script(`[...document.querySelectorAll("#answer img")].map((i) => i.naturalWidth + "x" + i.naturalHeight).join()`); sizes != "16x16,128x96,32x24" {
			t.Errorf("the pictures have %s, want 16x16,128x96,32x24", sizes)
		}
		b.until(`document.querySelector("#answer audio").duration === 0.5`)
		saved := t.TempDir()
		tell(b, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: saved})
		b.do("save the numbers", chromedp.Click(`//a[@download="NUMBERS.npy"]`))
		testkit.Eventually(t, startLimit, func() bool {
			file, err := os.ReadFile(filepath.Join(saved, "NUMBERS.npy"))
			return err == nil && bytes.HasPrefix(file, []byte("\x93NUMPY")) && len(file) == 128+24
		})
		b.shoot("answer")
		b.do("give what is no shape", chromedp.SetValue("#shape-0", "two"), chromedp.Click("button.main"))
		b.until(`document.getElementById("answer").innerText.startsWith("Not sent")`)
		b.do("ask for an error", chromedp.SetValue("#shape-0", "1"), chromedp.SetValue("#values-0", "raise"), chromedp.Click("button.main"))
		b.until(`document.getElementById("answer").innerText.includes("ValueError: <script>alert(2)</script>")`)
		b.shoot("error")
		b.noTrouble()
	})

	t.Run("live", func(t *testing.T) {
		b.t = t
		b.visit("/models/batched")
		b.do("open the configuration", chromedp.Click("#config-whole summary"))
		for range 3 {
			if status, body := s.request("POST", "/v2/models/batched/infer", `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}`); status != http.StatusOK {
				t.Fatalf("got %d %s", status, body)
			}
		}
		b.until(`document.querySelector("#periods tbody td").innerText === "3"`)
		b.until(`document.getElementById("instances").innerText.match(/ready/)`)
		if open := b.script(`document.getElementById("config-whole").open`); open != "true" {
			t.Error("a refresh has closed what a person has opened")
		}
		b.shoot("model")
		b.visit("/log")
		b.until(`document.body.innerText.includes("asked for raise")`)
		b.shoot("log")
		b.noTrouble()
	})

	t.Run("unload and load", func(t *testing.T) {
		b.t = t
		b.visit("/models/batched")
		b.do("unload", chromedp.Click("button.risky"))
		b.until(`document.querySelector("h1").innerText.includes("unloaded")`)
		b.do("load", chromedp.Click(`//button[text()="Load"]`))
		b.until(`document.querySelector("h1").innerText.includes("ready")`)
		b.do("load what is broken", chromedp.Navigate(b.url+"/models/broken"), chromedp.WaitReady("footer"), chromedp.Click(`//button[text()="Load"]`))
		b.until(`document.querySelector(".notice.bad") && document.querySelector(".notice.bad").innerText.includes("no weights here")`)
		b.mu.Lock()
		b.trouble = nil // the browser logs the status 409 as an error
		b.mu.Unlock()
	})

	t.Run("without script", func(t *testing.T) {
		b.t = t
		tell(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		b.visit("/models/painter")
		b.do("send", chromedp.SetValue("#values-0", "no script"), chromedp.Click("button.main"), chromedp.WaitReady("#answer img"))
		b.until(`document.getElementById("answer").innerText.includes("alert(3)</script>no script") && document.getElementById("values-0").value === "no script"`)
		tell(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{})
		b.noTrouble()
	})

	t.Run("other sites", func(t *testing.T) {
		b.t = t
		otherSites(b, s)
	})
}

// otherSites attacks the server from a page of another site, and from a host name that is rebound
// to this machine.
func otherSites(b *browser, s *runningServer) {
	t := b.t
	attack := `<!DOCTYPE html><meta charset="utf-8"><iframe name="f" src="PAGE/"></iframe>
		<form id="form" method="post" enctype="multipart/form-data" action="PAGE/models/batched/unload" target="f"><input name="token" value="guessed"></form>
		<script>
		const tries = [];
		(async () => {
			const attempt = async (name, f) => { try { tries.push(name + ": " + await f()); } catch (e) { tries.push(name + ": refused"); } };
			const body = () => { const b = new FormData(); b.append("token", "guessed"); return b; };
			await attempt("read", async () => (await fetch("PAGE/models/batched")).text());
			await attempt("script", () => new Promise((good, bad) => { const s = document.createElement("script"); s.src = "PAGE/"; s.onload = good; s.onerror = bad; document.head.append(s); }));
			await attempt("post", async () => (await fetch("PAGE/models/batched/unload", { method: "POST", body: body() })).text());
			await attempt("blind post", async () => (await fetch("PAGE/models/batched/unload", { method: "POST", mode: "no-cors", body: body() })).type);
			await attempt("beacon", () => navigator.sendBeacon("PAGE/models/batched/unload", body()));
			document.getElementById("form").submit();
			document.title = "tried";
		})();
		</script>`
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(strings.ReplaceAll(attack, "PAGE", b.url)))
	}))
	defer site.Close()
	b.do("visit a hostile page", chromedp.Navigate(strings.Replace(site.URL, "127.0.0.1", "evil.example", 1)))
	b.until(`document.title === "tried"`)
	got := b.script(`tries.join("; ")`)
	if want := "read: refused; script: refused; post: refused; blind post: refused; beacon: true"; got != want {
		t.Errorf("a page of another site: got %q, want %q", got, want)
	}
	b.until(`frames.length === 1`)

	// With a host name of the other site that resolves to this machine, its scripts have the same
	// origin.
	b.do("visit by a rebound name", chromedp.Navigate(strings.Replace(b.url, "127.0.0.1", "evil.example", 1)+"/models/batched"))
	if text := b.script("document.body.innerText"); !strings.Contains(text, "--http-ui-host") || strings.Contains(text, "batched") {
		t.Errorf("by a rebound name: got %q, want a refusal", text)
	}
	if got := b.script(`(async () => { const r = await fetch("/models/batched/unload", { method: "POST", body: new FormData() }); return r.status; })()`); got != "421" {
		t.Errorf("POST by a rebound name: got %s, want 421", got)
	}
	if status, body := s.request("GET", "/v2/models/batched/ready", ""); status != http.StatusOK {
		t.Errorf("after all that the model is not ready: %d %s", status, body)
	}
}
