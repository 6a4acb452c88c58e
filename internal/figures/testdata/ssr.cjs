// Draws figures with node instead of goja: node ssr.cjs ECHARTS DRAW FIGURES. DRAW is the program that the renderer runs; FIGURES
// is a list of {Option, Width, Height}. The pictures go to standard output as ECharts wrote them, as a list. Each is drawn in a
// context of its own, since ECharts numbers its elements from a counter that outlives a chart.
const fs = require('fs'), vm = require('vm');
const [echarts, draw, list] = process.argv.slice(2).map((name) => fs.readFileSync(name, 'utf8'));
const script = new vm.Script(echarts), program = new vm.Script(draw);
const pictures = JSON.parse(list).map(({Option, Width, Height}) => {
	const context = vm.createContext({setTimeout, setInterval, clearTimeout, clearInterval});
	script.runInContext(context);
	return program.runInContext(context)(Option, Width, Height);
});
process.stdout.write(JSON.stringify(pictures), () => process.exit(0)); // ECharts' clock would keep node alive for ever
