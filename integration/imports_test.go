package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// askModel sends a request to a model of the server in a terminal.
func (s *seat) askModel(model string) (status int, body string, err error) {
	response, err := http.Post(s.address("/v2/models/"+model+"/infer"), "application/json",
		strings.NewReader(`{"inputs": [{"name": "X", "shape": [1], "datatype": "INT32", "data": [0]}]}`))
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// modelAnswers waits until a model responds with a number.
func (s *seat) modelAnswers(t *testing.T, model, number string) {
	t.Helper()
	status, body, err := 0, "", error(nil)
	if !testkit.Within(startLimit, func() bool {
		status, body, err = s.askModel(model)
		return err == nil && status == http.StatusOK && strings.Contains(body, `"data":[`+number+`]`)
	}) {
		t.Fatalf("model %s answers with status %d, %q and error %v, want %s", model, status, body, err, number)
	}
}

// TestDevWatchesImportsElsewhere changes code outside the models' directories: a module that two
// models import, a module imported in execute, and modules that do not exist yet when they are
// imported. The models must be reloaded.
func TestDevWatchesImportsElsewhere(t *testing.T) {
	testkit.Story(t)
	modules := t.TempDir()
	t.Setenv("PYTHONPATH", modules)
	put := func(name, text string) { save(t, filepath.Join(modules, name), text) }
	put("shared/__init__.py", "from .number import N")
	put("shared/number.py", "N = 1")
	put("later.py", "K = 1")
	imports := func(module, value string) string {
		return strings.Replace(fmt.Sprintf(modelThatAnswers, value), "import numpy", module+"\nimport numpy", 1)
	}
	lazily := func(value string) string { return fmt.Sprintf(modelThatStops, "import later; answer = "+value) }
	s := takeSeat(t, writeFiles(t, map[string]string{
		"both/1/model.py":  strings.Replace(lazily("10 * shared.N + later.K"), "import numpy", "import shared\nimport numpy", 1),
		"one/1/model.py":   imports("import shared", "shared.N"),
		"async/1/model.py": strings.Replace(lazily("later.K"), "def execute", "async def execute", 1),
		"never/1/model.py": imports("import absent", "absent.N"),
	}), "--dev")
	s.Await("✗ never 1", startLimit)
	s.Await("serving 3 models", startLimit)
	s.modelAnswers(t, "both", "11")
	s.modelAnswers(t, "one", "1")
	s.modelAnswers(t, "async", "1")

	put("shared/number.py", "N = 2")
	s.modelAnswers(t, "both", "21")
	s.modelAnswers(t, "one", "2")
	s.Await("reloading model 'one': "+filepath.Join(modules, "shared", "number.py")+" has changed", startLimit)
	put("later.py", "K = 5")
	s.modelAnswers(t, "both", "25")
	s.modelAnswers(t, "async", "5")

	put("shared/number.py", "N = nothing")
	s.Await("model 'both' continues with the previous version", startLimit)
	s.modelAnswers(t, "both", "25")
	s.modelAnswers(t, "one", "2")
	put("shared/number.py", "N = 3 4")
	s.Await("SyntaxError", startLimit)
	put("shared/number.py", "N = 4")
	s.modelAnswers(t, "both", "45")
	s.modelAnswers(t, "one", "4")

	put("later.py", "from lacking import K") // loads do not import this module
	var body string
	if !testkit.Within(startLimit, func() bool {
		status := 0
		status, body, _ = s.askModel("both")
		return status == http.StatusInternalServerError
	}) || !strings.Contains(body, "No module named 'lacking'") {
		t.Fatalf("a module that is not there: got %q", body)
	}
	put("lacking.py", "K = 7")
	s.modelAnswers(t, "both", "47")

	put("absent/number.py", "N = 8")
	put("absent/__init__.py", "from .number import N")
	s.modelAnswers(t, "never", "8")
	s.Type("\x03")
	if status := s.Wait(startLimit); status != 0 {
		t.Errorf("got status %d after Ctrl-C, want 0", status)
	}
}

// fastModule is an extension module that builds without Python headers. It declares the structures
// itself, which are the same in all supported versions.
const fastModule = `
typedef struct { long references; void *type; void *init; long index; void *copy; const char *name, *doc; long size; void *rest[5]; } definition;
void *PyModule_Create2(definition *, int);
int PyModule_AddIntConstant(void *, const char *, long);
static definition fast = {1, 0, 0, 0, 0, "fast", 0, -1};
void *PyInit_fast(void) { void *module = PyModule_Create2(&fast, 1013); PyModule_AddIntConstant(module, "N", %s); return module; }
`

// TestDevWatchesExtensionModules rebuilds an extension module, in a directory outside the models
// and in a model's directory. The model that imports it must be reloaded.
func TestDevWatchesExtensionModules(t *testing.T) {
	testkit.Story(t)
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("this machine has no C compiler (cc)")
	}
	build := func(number, path string) {
		t.Helper()
		source := filepath.Join(t.TempDir(), "fast.c")
		save(t, source, fmt.Sprintf(fastModule, number))
		if output, err := exec.Command(compiler, "-shared", "-fPIC", "-o", source+".so", source).CombinedOutput(); err != nil {
			t.Fatalf("build the module: %v\n%s", err, output)
		}
		library, err := os.ReadFile(source + ".so")
		if err != nil {
			t.Fatal(err)
		}
		save(t, path, string(library))
	}
	modules := t.TempDir()
	t.Setenv("PYTHONPATH", modules)
	text := strings.Replace(fmt.Sprintf(modelThatAnswers, "fast.N"), "import numpy", "import fast\nimport numpy", 1)
	repository := writeFiles(t, map[string]string{"elsewhere/1/model.py": text, "within/1/model.py": strings.Replace(text, "import fast", "from . import fast", 1)})
	elsewhere, within := filepath.Join(modules, "fast.so"), filepath.Join(repository, "within", "1", "fast.so")
	build("1", elsewhere)
	build("2", within)
	s := takeSeat(t, repository, "--dev")
	s.Await("serving 2 models", startLimit)
	s.modelAnswers(t, "elsewhere", "1")
	s.modelAnswers(t, "within", "2")
	build("3", elsewhere)
	s.modelAnswers(t, "elsewhere", "3")
	build("4", within)
	s.modelAnswers(t, "within", "4")
	save(t, within, "no library")
	s.Await("model 'within' continues with the previous version", startLimit)
	build("5", within)
	s.modelAnswers(t, "within", "5")
	s.Type("\x03")
	if status := s.Wait(startLimit); status != 0 {
		t.Errorf("got status %d after Ctrl-C, want 0", status)
	}
}

// modelThatWrites counts its loads, and writes the count into a module that it imports later.
const modelThatWrites = `
import pathlib, sys, time
counter = pathlib.Path(__file__).with_name("loads.txt")
with counter.open("a") as lines:
    lines.write(".")
loads = counter.stat().st_size
made = pathlib.Path(%s)
made.write_text(f"N = {loads}")
time.sleep(%s)
sys.path.insert(0, str(made.parent))
sys.dont_write_bytecode = True
module = __import__(made.stem)
`

// TestDevIgnoresFilesThatLoadsWrite loads models that overwrite one of their modules at each load:
// in the model's directory, quickly or long before the load ends, or outside of it by two
// instances. They must not reload forever, but must still reload when a user saves a file.
func TestDevIgnoresFilesThatLoadsWrite(t *testing.T) {
	testkit.Story(t)
	modules := t.TempDir()
	writing := func(path, wait string) string {
		return fmt.Sprintf(modelThatWrites, path, wait) + fmt.Sprintf(modelThatAnswers, "loads")
	}
	repository := writeFiles(t, map[string]string{
		"calm/1/model.py":      fmt.Sprintf(modelThatAnswers, "0"),
		"quick/1/model.py":     writing("__file__).with_name('quickly_made.py'", "0"),
		"slow/1/model.py":      writing("__file__).with_name('slowly_made.py'", "0.6"),
		"several/1/model.py":   writing("'"+filepath.Join(modules, "made_elsewhere.py")+"'", "0"),
		"several/config.pbtxt": "instance_group [ { count: 2 kind: KIND_CPU } ]",
		"failing/1/model.py":   writing("__file__).with_name('made_in_vain.py'", "0") + "raise ValueError('in vain')\n",
	})
	s := takeSeat(t, repository, "--dev")
	s.Await("serving 4 models", startLimit)
	resave := func(model string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(repository, model, "1", "model.py"))
		if err != nil {
			t.Fatal(err)
		}
		save(t, filepath.Join(repository, model, "1", "model.py"), string(text)+"\n")
	}
	settled := map[string]string{"quick": "quick/1/quickly_made.py", "slow": "slow/1/slowly_made.py", "several": "", "failing": "failing/1/made_in_vain.py"}
	for model := range settled {
		resave(model)
	}
	for model, path := range settled {
		file := filepath.Join(repository, path)
		if path == "" {
			file = filepath.Join(modules, "made_elsewhere.py")
		}
		want := fmt.Sprintf("model '%s' writes %s whenever it is loaded, so that change does not reload it", model, file)
		if !testkit.Within(startLimit, func() bool { return strings.Contains(s.Shown(), want) }) {
			t.Fatalf("the terminal does not show %q", want)
		}
	}
	loads := func(model string) int64 { // of all instances
		t.Helper()
		counter, err := os.Stat(filepath.Join(repository, model, "1", "loads.txt"))
		if err != nil {
			t.Fatal(err)
		}
		return counter.Size()
	}
	number := 0
	rest := func() {
		t.Helper()
		before := make(map[string]int64)
		for model := range settled {
			before[model] = loads(model)
		}
		for range 2 { // two reloads of another model show that the poll has seen all changes
			number++
			save(t, filepath.Join(repository, "calm/1/model.py"), fmt.Sprintf(modelThatAnswers, strconv.Itoa(number)))
			s.modelAnswers(t, "calm", strconv.Itoa(number))
		}
		for model, count := range before {
			if now := loads(model); now != count {
				t.Errorf("model %s has been loaded %d times, and %d times since nobody changes it", model, count, now)
			}
		}
	}
	rest()
	for model, instances := range map[string]int64{"quick": 1, "several": 2} {
		before := loads(model)
		resave(model)
		if !testkit.Within(startLimit, func() bool { return loads(model) >= before+instances }) {
			t.Fatalf("model %s is not loaded for what a person saves", model)
		}
	}
	rest()
	before := loads("quick")
	save(t, filepath.Join(repository, "quick/1/quickly_made.py"), "N = 'mine'")
	if !testkit.Within(startLimit, func() bool { return loads("quick") != before }) {
		t.Fatal("a model is not loaded for what a person saves in the file that loads write")
	}
	rest()
	s.Type("\x03")
	if status := s.Wait(startLimit); status != 0 {
		t.Errorf("got status %d after Ctrl-C, want 0", status)
	}
}
