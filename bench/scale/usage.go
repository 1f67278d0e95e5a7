package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
)

// usage holds the resources of a server and its processes.
type usage struct {
	processes   int           // including the server's own
	stubs       int           // processes of models
	threads     int           // of the server's own process
	descriptors int           // of the server's own process
	server      int64         // its memory in bytes, with shared pages divided among processes (PSS)
	models      int64         // the memory of model processes
	others      int64         // of other processes, such as templates
	cpu         time.Duration // processor time of all, including ended processes
}

// jiffy is the kernel's unit of processor times.
const jiffy = 10 * time.Millisecond

// look measures a server.
func (p *server) look() (u usage, err error) {
	pids, err := measure.Tree(p.PID())
	if err != nil {
		return u, err
	}
	u.processes = len(pids)
	for i, pid := range pids {
		folder := fmt.Sprintf("/proc/%d/", pid)
		bytes, err := proportional(folder)
		if err != nil {
			continue // it has ended meanwhile
		}
		line, _ := os.ReadFile(folder + "cmdline")
		switch {
		case i == 0:
			u.server = bytes
			threads, _ := filepath.Glob(folder + "task/*")
			descriptors, _ := filepath.Glob(folder + "fd/*")
			u.threads, u.descriptors = len(threads), len(descriptors)
		case strings.Contains(string(line), "triton_python_backend_stub"):
			u.stubs++
			u.models += bytes
		default:
			u.others += bytes
		}
		u.cpu += spent(folder)
	}
	return u, nil
}

// proportional reads the PSS of a process.
func proportional(folder string) (int64, error) {
	text, err := os.ReadFile(folder + "smaps_rollup")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%ssmaps_rollup has no Pss", folder)
}

// spent reads the processor time of a process and of its ended children.
func spent(folder string) time.Duration {
	text, _ := os.ReadFile(folder + "stat")
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	var ticks int64
	for i := 11; i < 15 && i < len(fields); i++ {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * jiffy
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }

func kib(bytes int) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<10)) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d.Microseconds())/1000) }

func microseconds(d time.Duration) string { return fmt.Sprint(d.Microseconds()) }

// perSecond formats processor time as ms per second of span.
func perSecond(cpu, span time.Duration) string {
	return fmt.Sprintf("%.2f", float64(cpu.Microseconds())/1000/span.Seconds())
}
