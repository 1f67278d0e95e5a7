package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

var (
	// pageBlock is a fenced block with its language and its lines.
	pageBlock = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	// pageFile is the first line of a block that contains a file.
	pageFile = regexp.MustCompile(`^# ([\w./-]+\.\w+)\n`)
	// pagePort is an address on a page. The test's server uses other ports.
	pagePort = regexp.MustCompile(`localhost:(8000|8001|8002|9000)\b`)
)

// TestPagesWork follows the pages for new users: it writes their files, runs their commands, and
// expects the output on the page.
func TestPagesWork(t *testing.T) {
	testkit.Story(t)
	for _, page := range []struct {
		name     string
		sections bool // each section starts in a new folder
	}{
		{"tutorial", false},
		{"cookbook", true},
		{"migration", false},
	} {
		text, err := os.ReadFile("../docs/" + page.name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		sections := []string{string(text)}
		if page.sections {
			sections = strings.Split(string(text), "\n## ")[1:]
		}
		for _, section := range sections {
			title, _, _ := strings.Cut(section, "\n")
			t.Run(page.name+"/"+title, func(t *testing.T) {
				reader := newPageReader(t)
				blocks := pageBlock.FindAllStringSubmatch(section, -1)
				for _, block := range blocks {
					switch file := pageFile.FindStringSubmatch(block[2]); {
					case file != nil:
						reader.write(file[1], block[2])
					case block[1] == "console":
						reader.session(block[2])
					default:
						t.Errorf("neither a file nor a session, so it is not tested:\n%s", block[0])
					}
				}
				if len(blocks) == 0 {
					t.Error("there is nothing to do")
				}
			})
		}
	}
}

// pageReader follows the instructions of a page in a separate folder.
type pageReader struct {
	t           *testing.T
	folder      string
	environment []string
	server      *runningServer // nil until the page starts one
	openai      int            // the server's OpenAI port
}

func newPageReader(t *testing.T) *pageReader {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	r := &pageReader{t: t, folder: t.TempDir(), openai: testkit.Port(t)}
	programs := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(programs, "nereid")); err != nil {
		t.Fatal(err)
	}
	// Stand-ins replace modules that the pages need and few machines have.
	standIns, err := filepath.Abs("testdata/pages")
	if err != nil {
		t.Fatal(err)
	}
	pyutils, err := filepath.Abs("../pyutils")
	if err != nil {
		t.Fatal(err)
	}
	r.environment = append(os.Environ(),
		"PATH="+programs+":"+filepath.Dir(clientPython(t))+":"+os.Getenv("PATH"),
		"PYTHONPATH="+r.folder+":"+standIns+":"+pyutils,
		"PYTHONDONTWRITEBYTECODE=1",
	)
	return r
}

// write writes a file of the page.
func (r *pageReader) write(path, text string) {
	r.t.Helper()
	testkit.WriteFiles(r.t, r.folder, map[string]string{path: r.here(text)})
}

// here replaces the addresses of a page by those of the test's server.
func (r *pageReader) here(text string) string {
	if r.server == nil {
		return text
	}
	ports := map[string]int{"8000": r.server.http, "8001": r.server.grpc, "8002": r.server.metrics, "9000": r.openai}
	return pagePort.ReplaceAllStringFunc(text, func(address string) string {
		return "localhost:" + strconv.Itoa(ports[strings.TrimPrefix(address, "localhost:")])
	})
}

// session runs the commands of a block. They begin with "$ " and continue after "> ".
func (r *pageReader) session(text string) {
	r.t.Helper()
	for _, step := range strings.Split("\n"+text, "\n$ ")[1:] {
		lines := strings.Split(step, "\n")
		command, lines := lines[0], lines[1:]
		for len(lines) > 0 && strings.HasPrefix(lines[0], "> ") {
			command, lines = command+"\n"+lines[0][2:], lines[1:]
		}
		if repository, ok := strings.CutPrefix(command, "nereid serve "); ok {
			r.serve(strings.Fields(repository))
			continue
		}
		r.run(command, strings.Join(lines, "\n"))
	}
}

// run runs a command and expects the output on the page, in which … stands for any text.
func (r *pageReader) run(command, want string) {
	r.t.Helper()
	command = r.here(command)
	if strings.HasPrefix(command, "nereid bench ") {
		command += fmt.Sprintf(" --url=localhost:%d", r.server.http)
	}
	shell := exec.Command("bash", "-c", command)
	shell.Dir, shell.Env = r.folder, r.environment
	output, err := shell.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", command, err, output)
	}
	parts := strings.Split(strings.TrimSpace(want), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	pattern := regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$")
	if got := strings.TrimSpace(string(output)); !pattern.MatchString(got) {
		r.t.Errorf("%s prints\n%s\nand the page says\n%s", command, got, want)
	}
}

// serve starts the server of a page on the test's ports, and changes the addresses in the existing
// files.
func (r *pageReader) serve(arguments []string) {
	r.t.Helper()
	if r.server != nil {
		r.server.stop()
	}
	for i, argument := range arguments {
		if argument == "--openai-port=9000" {
			arguments[i] = fmt.Sprintf("--openai-port=%d", r.openai)
		}
	}
	program := []string{"env", "--chdir=" + r.folder}
	program = append(program, r.environment...)
	program = append(program, "nereid", "serve", arguments[0])
	r.server = launchProgram(r.t, program, "", arguments[0], arguments[1:]...)
	r.server.waitReady()
	files, err := filepath.Glob(filepath.Join(r.folder, "*.py"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			r.t.Fatal(err)
		}
		r.write(filepath.Base(file), string(text))
	}
}

// TestMigrationExamplesMatchTheOriginals runs the code for other frameworks in docs/migration.md,
// with stand-ins for large frameworks. It must return the same as the models that replace it.
func TestMigrationExamplesMatchTheOriginals(t *testing.T) {
	text, err := os.ReadFile("../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	reader := newPageReader(t)
	before := 0
	for _, block := range pageBlock.FindAllStringSubmatch(string(text), -1) {
		if file := pageFile.FindStringSubmatch(block[2]); file != nil && strings.HasPrefix(file[1], "before/") {
			reader.write(file[1], block[2])
			before++
		}
	}
	if before != 3 {
		t.Errorf("got %d pieces of code, want those of FastAPI, BentoML and MLflow", before)
	}
	script, err := filepath.Abs("testdata/pages/functions.py")
	if err != nil {
		t.Fatal(err)
	}
	reader.run("python3 "+script, "fastapi [3, 5]\nbentoml [3, 5]\nmlflow [3, 5]")
}
