//! Guarantees of every chart: all text is escaped, the same data gives the same bytes, nothing leaves the picture or the file.

use super::*;
use commgauge_base::stats::Interval;

const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&\u{202e}\u{7}]]>";

fn plot(text: &str) -> Plot {
    let mut measured = Series::new(text);
    measured.points =
        vec![Point::between(1024.0, 9e-6, 8e-6, 2e-5), Point::at(1048576.0, f64::NAN), Point::at(-1.0, 1e-5)];
    measured.points.push(Point { crossed: true, ..Point::at(65536.0, 1e-4) });
    measured.band = vec![(1024.0, 8e-6, 1e-5), (65536.0, 2e-5, 4e-5)];
    let mut curve = Series::new("curve");
    let time = |bytes: f64| xy(bytes, 1e-5 + 1e-11 * bytes);
    curve.curve = (10..21).map(|power| time(f64::from(1 << power))).collect();
    let mut plot = Plot::new(text, Axis::log(text, Unit::Bytes), Axis::log(text, Unit::Seconds));
    plot.series = vec![measured, curve];
    plot.lines = vec![Line { name: text.into(), kind: LineKind::Expected, points: vec![xy(1024.0, 2e-5)] }];
    plot.shades = vec![Shade { from: 65536.0, to: 1048576.0, name: text.into() }];
    plot.changes = vec![Change { x: 4096.0, label: text.into() }];
    plot.description = text.into();
    plot
}

fn bars(text: &str) -> Bars {
    let bar = Bar {
        label: text.into(),
        parts: vec![1.0, 2.0],
        interval: Some(Interval { low: 2.5, high: 3.5 }),
        note: text.into(),
    };
    Bars { parts: vec![text.into(), "b".into()], bars: vec![bar], ..Bars::new(text, Axis::linear(text, Unit::Seconds)) }
}

fn histogram(text: &str) -> Histogram {
    let marks = vec![Mark { name: "p50", at: 1e-5 }, Mark { name: "max", at: 3e-4 }];
    let bins = vec![(Histogram::bin_of(1e-5).unwrap(), 90), (Histogram::bin_of(3e-4).unwrap(), 1)];
    Histogram { rows: vec![HistogramRow { label: text.into(), bins, marks }], ..Histogram::new(text) }
}

fn heat_map(text: &str) -> HeatMap {
    let cells = vec![
        vec![Cell::Nothing, Cell::Percent(97.0), Cell::Percent(42.0)],
        vec![Cell::Failed, Cell::Nothing, Cell::Percent(140.0)],
        vec![Cell::Wrong, Cell::NotMeasured, Cell::Nothing],
    ];
    let labels = vec![text.into(), "b".into(), "c".into()];
    let hovers = vec![vec![text.into(); 3]; 3];
    HeatMap {
        title: text.into(),
        description: text.into(),
        reference: text.into(),
        labels,
        cells,
        hovers,
        begins: vec![1],
    }
}

fn all(text: &str) -> Vec<Svg> {
    vec![plot(text).draw(), bars(text).draw(), histogram(text).draw(), heat_map(text).draw()]
}

#[test]
fn no_text_escapes_its_element() {
    for svg in all(HOSTILE) {
        let text = svg.inline();
        let forbidden = ["<img", "onerror=alert(1)>", "\u{202e}", "\u{7}", "]]>"];
        assert!(forbidden.iter().all(|word| !text.contains(word)), "{text}");
        assert!(text.contains("&lt;img"), "the text is still shown");
    }
}

#[test]
fn the_same_data_gives_the_same_bytes_and_other_data_others() {
    assert_eq!(all("a"), all("a"));
    assert_ne!(all("a"), all("b"));
}

#[test]
fn a_chart_requests_no_external_resource_and_needs_no_style_attribute() {
    for svg in all("a") {
        let text = svg.standalone();
        let outside = text.replace("http://www.w3.org/2000/svg", "");
        let forbidden = ["http", "url(", "href", "<script", " style=", "NaN", "inf"];
        assert!(forbidden.iter().all(|word| !outside.contains(word)), "{text}");
        assert!(text.contains("prefers-color-scheme:dark"));
        assert!(!svg.inline().contains("<style"), "inside a page the style sheet is the page's");
    }
}

#[test]
fn everything_drawn_lies_inside_the_picture() {
    for svg in all("a") {
        let text = svg.inline();
        let size = |name: &str| {
            let rest = text.split_once(&format!("{name}=\"")).unwrap().1;
            rest.split_once('"').unwrap().0.parse::<f64>().unwrap()
        };
        let (width, height) = (size("width"), size("height"));
        for (x, y) in places(&text) {
            assert!((-0.1..=width + 0.1).contains(&x) && (-0.1..=height + 0.1).contains(&y), "{x} {y} in {text}");
        }
    }
}

/// The absolute positions at which paths begin or to which they draw lines.
fn places(text: &str) -> Vec<(f64, f64)> {
    let mut found = Vec::new();
    for path in text.split(" d=\"").skip(1).map(|rest| rest.split_once('"').unwrap().0) {
        for part in path.split(['M', 'L']).skip(1) {
            let end = part.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(part.len());
            let (x, y) = part[..end].split_once(' ').unwrap();
            found.push((x.parse().unwrap(), y.parse().unwrap()));
        }
    }
    assert!(!found.is_empty());
    found
}

#[test]
fn bytes_have_binary_ticks_and_times_decimal_ones() {
    let text = plot("a").draw().inline();
    for tick in [">4 KiB<", ">64 KiB<", ">10 us<", ">100 us<"] {
        assert!(text.contains(tick), "{tick} in {text}");
    }
}

#[test]
fn bins_do_not_depend_on_the_data() {
    for (seconds, bin) in [(1.0, Some(0)), (10.0, Some(40)), (0.1, Some(-40)), (1e-6, Some(-240)), (0.0, None)] {
        assert_eq!(Histogram::bin_of(seconds), bin, "{seconds}");
    }
    assert!((Histogram::bin_start(-240) - 1e-6).abs() < 1e-18);
}

#[test]
fn a_large_matrix_is_gathered_and_keeps_its_worst_cells() {
    let size = 130;
    let mut cells = vec![vec![Cell::Percent(100.0); size]; size];
    cells[7][99] = Cell::Percent(40.0);
    cells[129][0] = Cell::Wrong;
    let labels: Vec<String> = (0..size).map(|index| format!("h{index}")).collect();
    let hovers = labels.iter().map(|one| labels.iter().map(|other| format!("{one}, {other}")).collect()).collect();
    let map = HeatMap {
        title: String::new(),
        description: String::new(),
        reference: "expected".into(),
        labels,
        cells,
        hovers,
        begins: Vec::new(),
    };
    let (gathered, block) = map.gathered(64);
    assert_eq!((block, gathered.labels.len()), (3, 44));
    assert_eq!((gathered.cells[2][33], gathered.cells[43][0]), (Cell::Percent(40.0), Cell::Wrong));
    assert_eq!(gathered.labels[2], "h6 … h8");
    assert_eq!(gathered.hovers[2][33], "h7, h99", "the pair that the cell stands for");
}

#[test]
fn every_cell_shows_its_value_on_hover_and_up_to_16_rows_in_the_cell() {
    for (size, class) in [(16, "cg-on cg-mid"), (32, "cg-on cg-small cg-mid")] {
        let cells = vec![vec![Cell::Percent(97.0); size]; size];
        let labels: Vec<String> = (0..size).map(|index| format!("h{index}")).collect();
        let hovers = vec![vec!["h1, h2: 24.1 GB/s".to_owned(); size]; size];
        let (title, reference) = ("one way".to_owned(), "the median".to_owned());
        let description = String::new();
        let svg = HeatMap { title, description, reference, labels, cells, hovers, begins: Vec::new() }.draw();
        let text = svg.inline();
        let squares = text.matches("<title>h1, h2: 24.1 GB/s, 97 % of the median</title>").count();
        assert_eq!(squares, size * size, "{text}");
        assert!(text.matches(&format!("class=\"{class}\">97</text>")).count() >= size * size, "{text}");
        assert!(!text.contains("class=\"cg-h4\"><path"), "a healthy machine is calm");
        assert!(svg.summary().contains("cells are within 90 to 110 % of the median"), "{}", svg.summary());
    }
}

#[test]
fn every_picture_says_its_numbers_in_words() {
    let summary = plot("measured").draw().summary().to_owned();
    assert!(summary.contains(" at 1 KiB"), "{summary}");
    assert!(bars("a").draw().summary().contains("a a"), "the label with its note");
    let text = histogram("64 MiB").draw();
    assert!(text.summary().contains("64 MiB: p50 10 us, max 300 us"), "{}", text.summary());
    for svg in all("a") {
        assert!(svg.inline().contains(&format!("<desc>{}</desc>", svg.summary())), "{}", svg.inline());
    }
}

#[test]
fn sizes_within_a_factor_of_two_still_have_ticks_in_binary_units() {
    let mut series = Series::new("measured");
    series.points = (0..5).map(|step| Point::at(f64::from((1 << 20) + step * 65536), 1e-4)).collect();
    let axes = (Axis::log("bytes_total", Unit::Bytes), Axis::linear("time", Unit::Seconds));
    let text = Plot { series: vec![series], ..Plot::new("", axes.0, axes.1) }.draw().inline();
    assert!(text.contains(">1 MiB<") && text.contains(">1.2 MiB<"), "{text}");
}

#[test]
fn rates_over_decades_are_logarithmic_and_others_begin_at_zero() {
    let of = |low: f64| {
        let mut series = Series::new("measured");
        series.points = vec![Point::at(1024.0, low), Point::at(1048576.0, 2e11)];
        let axes = (Axis::log("bytes_total", Unit::Bytes), Axis::linear("bus bandwidth", Unit::BytesPerSecond));
        Plot { series: vec![series], ..Plot::new("", axes.0, axes.1) }.log_over_decades().draw().inline()
    };
    assert!(of(1e8).contains(">1 GB/s<") && of(1e8).contains(">100 GB/s<"), "{}", of(1e8));
    assert!(of(1e11).contains(">0<") && of(1e11).contains("bus bandwidth, GB/s"), "{}", of(1e11));
}
